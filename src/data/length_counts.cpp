#include "trainer/data/length_counts.h"

#include <bit>
#include <cmath>

namespace trainer {
namespace {

constexpr int64_t kShort = 1 << 14;

int64_t bucket_of(int64_t length) { return std::bit_width(static_cast<uint64_t>(length)); }

}  // namespace

void LengthCounts::add(int64_t length, int64_t times) {
  count_ += times;
  total_ += length * times;
  if (length >= kShort) {
    long_[length] += times;
    return;
  }
  const auto place = static_cast<size_t>(length);
  if (place >= short_.size()) short_.resize(place + 1);
  short_[place] += times;
}

void LengthCounts::merge(const LengthCounts& other) {
  for (const auto& [length, times] : other.counts()) add(length, times);
}

std::map<int64_t, int64_t> LengthCounts::counts() const {
  std::map<int64_t, int64_t> all = long_;
  for (size_t length = 0; length < short_.size(); length++) {
    if (short_[length] > 0) all[static_cast<int64_t>(length)] = short_[length];
  }
  return all;
}

double LengthCounts::mean() const {
  return count_ > 0 ? static_cast<double>(total_) / static_cast<double>(count_) : 0;
}

int64_t LengthCounts::longest() const { return percentile(1); }

int64_t LengthCounts::percentile(double share) const {
  const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(count_)));
  int64_t seen = 0;
  for (const auto& [length, times] : counts()) {
    seen += times;
    if (seen >= rank) return length;
  }
  return 0;
}

std::vector<LengthCounts::Bucket> LengthCounts::histogram() const {
  std::vector<Bucket> buckets;
  for (const auto& [length, times] : counts()) {
    const int64_t bucket = bucket_of(length);
    const int64_t first = buckets.empty() ? bucket : bucket_of(buckets.back().from) + 1;
    for (int64_t next = first; next <= bucket; next++)
      buckets.push_back({next == 0 ? 0 : int64_t{1} << (next - 1), (int64_t{1} << next) - 1, 0});
    buckets.back().count += times;
  }
  return buckets;
}

}  // namespace trainer
