// Finds duplicate rows: within one set, or between the training and the evaluation data.
#pragma once

#include "trainer/data/dataset.h"
#include "trainer/data/report.h"

namespace trainer {

// Sets report.train.duplicates. With evaluation data (nullptr: none), also sets report.eval->duplicates and
// report.overlap. Compares the 64-bit hashes in the index, so it reads no rows; it needs about 10 bytes per
// row while it runs. Rows that were dropped for their length do not count.
void count_repeats(const Dataset& train, const Dataset* eval, RunDataReport& report);

}  // namespace trainer
