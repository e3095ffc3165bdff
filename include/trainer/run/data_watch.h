// Steps that wait for their data: told once, with what to do.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/config.h"
#include "trainer/run/metric_rows.h"

namespace trainer {

class DataWatch {
 public:
  // After each step. A warning when the steps of a while waited for more than a tenth of their time, else "".
  std::string add(const StepSeconds& seconds, const Config& config);

 private:
  bool is_first_step_ = true;  // nothing could be made ahead of it
  bool told_ = false;
  int64_t steps_ = 0;
  StepSeconds sum_;
};

}  // namespace trainer
