// A whole run from C++, the same as `trainer train`: it shows the start block and progress on stderr, and
// writes artefacts, metrics.jsonl and log.txt into the output directory.
#pragma once

#include <vector>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"

namespace trainer {

// Trains as configured (load_training_config() reads and checks a configuration). Each row of metrics also
// goes to `sinks`, on this thread. Signals are left to the caller: while a StopSignals object
// (trainer/base/stop_signals.h) exists, the run handles them as the program does. Throws the types of
// trainer/base/error.h.
void train(const Config& config, const std::vector<MetricSink*>& sinks = {});

}  // namespace trainer
