// How much of what a model computes would be padding.
#pragma once

#include <cstdint>

#include "trainer/data/batching.h"
#include "trainer/data/dataset.h"
#include "trainer/data/report.h"

namespace trainer {

// Of the steps of the first epoch, or, where those have more than `most_samples` samples, of some that are
// spread over it evenly: loads, cuts and lays them out as training does.
PaddingReport measure_padding(const Dataset& data, const SampleOrder& order, int64_t effective_batch_size,
                              const CutLimits& limits, int64_t most_samples = 8192);

}  // namespace trainer
