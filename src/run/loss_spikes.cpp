#include "trainer/run/loss_spikes.h"

#include <algorithm>
#include <cmath>

namespace trainer {
namespace {

constexpr size_t kWindow = 64, kLeast = 20;
constexpr double kFactor = 1.5, kDeviations = 8;
constexpr double kNormal = 1.4826;  // what makes the median absolute deviation a standard deviation

// The upper one of the two in the middle.
double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool LossSpikes::add(double loss) {
  bool is_spike = false;
  if (recent_.size() >= kLeast) {
    median_ = median_of(recent_);
    std::vector<double> distances;
    for (const double value : recent_) distances.push_back(std::abs(value - median_));
    is_spike = loss > kFactor * median_ && loss > median_ + kDeviations * kNormal * median_of(distances);
  }
  if (recent_.size() == kWindow) recent_.erase(recent_.begin());
  recent_.push_back(loss);
  return is_spike;
}

}  // namespace trainer
