#include "trainer/run/run_length.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/error.h"
#include "trainer/data/batching.h"

namespace trainer {

RunLength run_length(const Config& config, int64_t dataset_size, const RunPosition& begin) {
  const int64_t batch = config.effective_batch_size();
  RunLength length{dataset_size, steps_per_epoch(dataset_size, batch), config.training.max_steps};
  if (length.total_steps <= 0) {
    const auto all = static_cast<int64_t>(
        std::ceil(config.training.num_train_epochs * static_cast<double>(length.steps_per_epoch)));
    // Equals begin.step, unless the data or the effective batch changed when the run resumed.
    const int64_t done = begin.samples_seen / dataset_size * length.steps_per_epoch +
                         steps_per_epoch(begin.samples_seen % dataset_size, batch);
    length.total_steps = begin.step + std::max<int64_t>(all - done, 0);
  }
  if (length.total_steps <= 0) throw DataError("the training data and configuration give no training steps");
  return length;
}

bool is_due(IntervalStrategy strategy, int64_t steps, const RunPosition& position, const RunLength& length) {
  switch (strategy) {
    case IntervalStrategy::no:
      return false;
    case IntervalStrategy::steps:
      return position.step % steps == 0;
    case IntervalStrategy::epoch:
      return position.samples_seen % length.dataset_size == 0;
  }
  return false;
}

double epoch_of(int64_t samples_seen, int64_t dataset_size) {
  return static_cast<double>(samples_seen) / static_cast<double>(dataset_size);
}

double epoch_of(const RunPosition& position) {
  return position.dataset_size > 0 ? epoch_of(position.samples_seen, position.dataset_size) : 0;
}

}  // namespace trainer
