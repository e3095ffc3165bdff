// How long a run is, and which of its steps end an interval.
#pragma once

#include <cstdint>

#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"

namespace trainer {

struct RunLength {
  int64_t dataset_size = 0, steps_per_epoch = 0, total_steps = 0;
};
// max_steps, or the epochs rounded up to whole steps (transformers, trainer.py); of a run that resumes, the
// steps that are done and those that are left of the epochs. Throws DataError when there are none.
RunLength run_length(const Config& config, int64_t dataset_size, const RunPosition& begin = {});

// Whether something that happens every `steps` or at the end of each epoch is due.
bool is_due(IntervalStrategy strategy, int64_t steps, const RunPosition& position, const RunLength& length);

// Epochs done after so many samples.
double epoch_of(int64_t samples_seen, int64_t dataset_size);
double epoch_of(const RunPosition& position);  // 0 where nothing was trained yet

}  // namespace trainer
