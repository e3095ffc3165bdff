// Warns once when steps wait for their data, and says what to do.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/config.h"
#include "trainer/run/metric_rows.h"

namespace trainer {

class DataWatch {
 public:
  // To be called after each step. Returns a warning when the last steps spent more than a tenth of their time
  // waiting for data, else "".
  std::string add(const StepSeconds& seconds, const Config& config);

 private:
  bool is_first_step_ = true;  // its data could not be prepared ahead
  bool told_ = false;
  int64_t steps_ = 0;
  StepSeconds sum_;
};

}  // namespace trainer
