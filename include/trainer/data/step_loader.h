// Prepares effective batches ahead of the step that needs them, in background threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/sample.h"

namespace trainer {

struct StepLoaderOptions {
  int64_t num_workers = 2;  // threads; the samples of a batch are spread over all of them
  int64_t prefetch = 2;     // the most batches kept ready; at least 1
  Share share = {};         // the part of each batch that this process computes
};

// The dataset indices of an effective batch, which lies within an epoch.
struct StepIndices {
  StepIndices(std::vector<int64_t> of_samples = {}, int64_t in_epoch = 0)
      : indices(std::move(of_samples)), epoch(in_epoch) {}
  std::vector<int64_t> indices;
  int64_t epoch;
};

// Workers and prefetch do not affect the batches, only the speed. next() must be called from one thread only.
class StepLoader {
 public:
  // Returns the next batch; empty at the end. Called from the loader threads, but never by two at the same
  // time.
  using NextIndices = std::function<StepIndices()>;

  // The data set must outlive the loader.
  StepLoader(const Dataset& dataset, NextIndices next_indices, const StepLoaderOptions& options);
  // Waits for the samples in progress, not for whole batches.
  ~StepLoader();

  // Waits for the next batch, in order, and returns it. Throws the error of its first bad sample (DataError
  // with file:line), and std::logic_error when there are no more batches.
  EffectiveBatch next();

 private:
  class Queue;
  std::unique_ptr<Queue> queue_;
};

}  // namespace trainer
