// Where a run stands, and the rows it writes about itself (docs/metrics.md).
#pragma once

#include <cstdint>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"
#include "trainer/training/predictions.h"
#include "trainer/training/trainer.h"

namespace trainer {

// Where a run stands.
struct Position {
  int64_t step = 0, samples_seen = 0, tokens_seen = 0;
  double epoch = 0;
};

// The length of a run.
struct RunLength {
  int64_t dataset_size = 0, steps_per_epoch = 0, total_steps = 0;
};
// max_steps, or the epochs rounded up to whole steps (transformers, trainer.py); of a run that goes on, what
// is done and what is left of them. Throws DataError when there are none.
RunLength run_length(const Config& config, int64_t dataset_size, const Position& begin = {});

// Whether something that happens every `steps` or at the end of each epoch is due.
bool is_due(IntervalStrategy strategy, int64_t steps, const Position& position, const RunLength& length);

// Epochs done after so many samples.
double epoch_of(int64_t samples_seen, int64_t dataset_size);

struct StepSeconds {
  double all = 0;        // from waiting for its data to the end of the update
  double data_wait = 0;  // of these, waiting for its data
};

MetricRow train_row(const Position& position, const EffectiveBatch& batch, const StepResult& result,
                    const StepSeconds& seconds, at::Device device);
// predictions: nullptr where none were generated.
MetricRow evaluation_row(const Position& position, const EvaluationResult& result,
                         const Predictions* predictions, double seconds);
MetricRow recovery_row(const Position& position, const Recovery& recovery);
// `seconds`: how long the run stood still. in_background: it is still being written.
MetricRow save_row(int64_t step, const std::string& path, int64_t bytes, double seconds,
                   bool in_background = false);

}  // namespace trainer
