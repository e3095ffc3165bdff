#include "run/data_watch.h"

#include <cmath>
#include <utility>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

constexpr int64_t kLeastSteps = 20;
constexpr double kLeastSeconds = 30, kTolerated = 0.1;

}  // namespace

std::string DataWatch::add(const StepSeconds& seconds, const Config& config) {
  if (std::exchange(is_first_step_, false) || told_) return "";
  steps_++;
  sum_.all += seconds.all;
  sum_.data_wait += seconds.data_wait;
  if (steps_ < kLeastSteps || sum_.all < kLeastSeconds) return "";
  const double share = sum_.data_wait / sum_.all;
  const int64_t steps = std::exchange(steps_, 0);
  sum_ = {};
  if (share <= kTolerated) return "";
  told_ = true;
  return concat("the last ", steps, " steps waited ", std::lround(100 * share),
                " % of their time for data. What helps: more training.num_workers (now ",
                config.training.num_workers, "), if processors are idle; more data.prefetch (now ",
                config.data.prefetch, "), if some steps have far longer samples than others; a faster disk");
}

}  // namespace trainer
