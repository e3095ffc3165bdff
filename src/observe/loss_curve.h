// The losses of a run so far, in few numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace trainer {

// At most 256 means of equally many steps each.
class LossCurve {
 public:
  void add(double loss) {
    if (!std::isfinite(loss)) return;
    sum_ += loss;
    if (++count_ < each_) return;
    means_.push_back(sum_ / static_cast<double>(each_));
    sum_ = 0;
    count_ = 0;
    if (means_.size() == kMost) halve();
  }
  const std::vector<double>& means() const { return means_; }

 private:
  static constexpr size_t kMost = 256;

  void halve() {
    for (size_t i = 0; i < kMost / 2; i++) means_[i] = (means_[2 * i] + means_[2 * i + 1]) / 2;
    means_.resize(kMost / 2);
    each_ *= 2;
  }

  std::vector<double> means_;
  int64_t each_ = 1, count_ = 0;  // steps of a mean; of the next one so far
  double sum_ = 0;
};

}  // namespace trainer
