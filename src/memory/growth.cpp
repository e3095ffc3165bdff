#include "memory/growth.h"

namespace trainer {
namespace {

constexpr int64_t kStretch = 10;  // steps
constexpr size_t kFloors = 5;

}  // namespace

bool GrowthWatch::rises() const {
  for (size_t i = 1; i < floors_.size(); i++) {
    if (floors_[i].bytes <= floors_[i - 1].bytes + noise_) return false;
  }
  return true;
}

std::optional<Growth> GrowthWatch::add(int64_t step, int64_t bytes_in_use) {
  const int64_t at = seen_++ - skip_;
  if (told_ || at < 0) return std::nullopt;
  if (at % kStretch == 0) {
    if (floors_.size() == kFloors) floors_.erase(floors_.begin());
    floors_.push_back({step, bytes_in_use});
  } else if (bytes_in_use < floors_.back().bytes) {
    floors_.back() = {step, bytes_in_use};
  }
  const bool is_complete = at % kStretch == kStretch - 1 && floors_.size() == kFloors;
  if (!is_complete || !rises()) return std::nullopt;
  told_ = true;
  const Floor &first = floors_.front(), &last = floors_.back();
  return Growth{(last.bytes - first.bytes) / (last.step - first.step), first.step, last.step, first.bytes,
                last.bytes};
}

}  // namespace trainer
