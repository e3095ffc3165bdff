// The rows that a run writes about itself (docs/metrics.md).
#pragma once

#include <cstdint>

#include "trainer/base/metrics.h"
#include "trainer/formats/run_position.h"
#include "trainer/training/predictions.h"
#include "trainer/training/trainer.h"

namespace trainer {

struct StepSeconds {
  double all = 0;        // from the wait for its data to the end of the update
  double data_wait = 0;  // the part of it spent waiting for data
};

// Each function returns the row of one event.
MetricRow train_row(const RunPosition& position, const EffectiveBatch& batch, const StepResult& result,
                    const StepSeconds& seconds, at::Device device);
// `predictions`: nullptr if none were generated. `seconds`: duration of the evaluation.
MetricRow evaluation_row(const RunPosition& position, const EvaluationResult& result,
                         const Predictions* predictions, double seconds);
MetricRow recovery_row(const RunPosition& position, const Recovery& recovery);
// `seconds`: how long training was blocked. in_background: the file is still being written.
MetricRow save_row(int64_t step, const std::string& path, int64_t bytes, double seconds,
                   bool in_background = false);

}  // namespace trainer
