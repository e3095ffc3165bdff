// The files of a data set, each with its index.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/report.h"

#include "data/row_file.h"
#include "data/row_index.h"

namespace trainer {

struct Part {
  RowFile file;
  RowIndex index;
  int64_t first_sample = 0;
  float loss_weight = 1;  // of its entry of data.train
};

// Returns what was counted in all of them.
DataReport report_of(const std::vector<Part>& parts);

}  // namespace trainer
