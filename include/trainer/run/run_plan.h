// The memory plan of a run that is about to begin, and how it compares with what the run takes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"
#include "trainer/data/dataset.h"
#include "trainer/training/plan.h"
#include "trainer/training/worst_batch.h"

namespace trainer {

struct RunPlan {
  Config config;  // with numbers where the configuration says auto
  MemoryPlan plan;
  int64_t limit = 0;  // bytes; 0: none
  bool solved = false;

  bool known() const { return plan.num_blocks > 0; }

  // Three lines of the start block.
  std::vector<std::pair<std::string, std::string>> lines() const;
  // After the first step, `measured` the most that tensors took: a line for the log, and a row of metrics.
  std::string compared(int64_t measured) const;
  MetricRow row(int64_t step, int64_t measured) const;
};

// Of the data, as they are cut.
LongestSample longest_sample(const Dataset& train);

// Of a run on `device`, under the limit in force there. Throws OutOfMemoryError where nothing that the
// configuration leaves open fits.
RunPlan plan_run(const Config& config, const PlanTarget& target, c10::Device device);

}  // namespace trainer
