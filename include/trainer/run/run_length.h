// The length of a run, and the steps at which its intervals end.
#pragma once

#include <cstdint>

#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"

namespace trainer {

struct RunLength {
  int64_t dataset_size = 0, steps_per_epoch = 0, total_steps = 0;
};
// Returns max_steps, or the epochs rounded up to whole steps (transformers, trainer.py). For a run that
// resumes: the steps done so far plus those left of the epochs. Throws DataError when there are no steps.
RunLength run_length(const Config& config, int64_t dataset_size, const RunPosition& begin = {});

// Returns whether something that happens every `steps` steps, or at the end of each epoch, is due now.
bool is_due(IntervalStrategy strategy, int64_t steps, const RunPosition& position, const RunLength& length);

// Returns the epochs done after `samples_seen` samples, as a fraction.
double epoch_of(int64_t samples_seen, int64_t dataset_size);
double epoch_of(const RunPosition& position);  // 0 if nothing was trained yet

}  // namespace trainer
