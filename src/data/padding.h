// Measures how much of the computation would be spent on padding.
#pragma once

#include <cstdint>

#include "trainer/data/batching.h"
#include "trainer/data/dataset.h"
#include "trainer/data/report.h"

namespace trainer {

// Measures the steps of the first epoch. When these have more than `most_samples` samples, it measures a
// selection that is spread evenly over the epoch. Splits and collates the samples as training does.
PaddingReport measure_padding(const Dataset& data, const SampleOrder& order, int64_t effective_batch_size,
                              const CutLimits& limits, int64_t most_samples = 8192);

}  // namespace trainer
