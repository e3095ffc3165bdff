// Rows that are there twice: in one set, or in the training and the evaluation data.
#pragma once

#include "trainer/data/dataset.h"
#include "trainer/data/report.h"

namespace trainer {

// Sets report.train.duplicates, and with evaluation data (nullptr: none) eval's and the overlap. Compares by
// the hashes of 64 bits in the index, so no row is read; takes some 10 bytes a row meanwhile. Rows that are
// left out for their length do not count.
void count_repeats(const Dataset& train, const Dataset* eval, RunDataReport& report);

}  // namespace trainer
