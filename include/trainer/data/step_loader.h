// Effective batches made ahead of the step that needs them, by threads of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/sample.h"

namespace trainer {

struct StepLoaderOptions {
  int64_t num_workers = 2;  // threads; the samples of a batch are spread over all of them
  int64_t prefetch = 2;     // batches that are held ready at most, at least 1
};

// What comes out does not depend on the options. For one thread that takes the batches.
class StepLoader {
 public:
  // The dataset indices of one batch after the other; empty: there are no more. Called from the loader's
  // threads, but never twice at once.
  using NextIndices = std::function<std::vector<int64_t>()>;

  // The data set must outlive the loader.
  StepLoader(const Dataset& dataset, NextIndices next_indices, const StepLoaderOptions& options);
  // Waits for the samples that are being made, not for whole batches.
  ~StepLoader();

  // The next batch, in order; waits for it. Throws what its first bad sample threw (DataError with
  // file:line), and std::logic_error when there are no more.
  EffectiveBatch next();

 private:
  class Queue;
  std::unique_ptr<Queue> queue_;
};

}  // namespace trainer
