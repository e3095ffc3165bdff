// Losses that are far above those of the steps before.
#pragma once

#include <cstdint>
#include <vector>

namespace trainer {

class LossSpikes {
 public:
  // `recent`: what recent() was when a run was saved, to go on as it would have.
  explicit LossSpikes(std::vector<double> recent = {}) : recent_(std::move(recent)) {}

  // Takes the (finite) loss of a step. Whether it is a spike: above half as much again as the median of the
  // last 64 losses, and above it by 8 times the deviation that is usual there (1.4826 x the median absolute
  // deviation). With fewer than 20 losses before it none is.
  bool add(double loss);

  // Of the losses that the last add() compared with.
  double median() const { return median_; }

  const std::vector<double>& recent() const { return recent_; }

 private:
  std::vector<double> recent_;  // the oldest first
  double median_ = 0;
};

}  // namespace trainer
