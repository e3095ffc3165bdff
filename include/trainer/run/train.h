// A whole run from C++, as `trainer train` makes it: the start block and progress on stderr, artefacts,
// metrics.jsonl and log.txt in the output directory.
#pragma once

#include <vector>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"

namespace trainer {

// Trains as configured (load_training_config() reads and checks a configuration). Each row of metrics also
// goes to `sinks`, from this thread. Signals are the caller's: where a StopSignals
// (trainer/base/stop_signals.h) lives, the run answers them as the program does. Throws the types of
// trainer/base/error.h.
void train(const Config& config, const std::vector<MetricSink*>& sinks = {});

}  // namespace trainer
