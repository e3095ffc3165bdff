#include "data/repeats.h"

#include <algorithm>
#include <utility>

namespace trainer {

// Works in parts, by the first bits of the hash: only one part at a time is sorted and copied.
Repeats find_repeats(const std::vector<uint64_t>& hashes, size_t named) {
  constexpr uint64_t kPartBits = 5;
  Repeats repeats;
  std::vector<std::pair<uint64_t, int64_t>> part;
  for (uint64_t prefix = 0; prefix < (uint64_t{1} << kPartBits); prefix++) {
    part.clear();
    for (size_t row = 0; row < hashes.size(); row++) {
      if (hashes[row] >> (64 - kPartBits) == prefix) part.emplace_back(hashes[row], row);
    }
    std::ranges::sort(part);
    size_t original = 0;
    for (size_t at = 1; at < part.size(); at++) {
      if (part[at].first != part[original].first) {
        original = at;
        continue;
      }
      repeats.count++;
      repeats.first.push_back({part[at].second, part[original].second});
    }
    std::ranges::sort(repeats.first, {}, &Repeat::row);
    repeats.first.resize(std::min(repeats.first.size(), named));
  }
  return repeats;
}

SeenHashes::SeenHashes(std::vector<uint64_t> hashes) : hashes_(std::move(hashes)) {
  std::ranges::sort(hashes_);
  const auto repeated = std::ranges::unique(hashes_);
  hashes_.erase(repeated.begin(), repeated.end());
  rows_.assign(hashes_.size(), -1);
}

void SeenHashes::add(uint64_t hash, int64_t row) {
  const auto place = std::ranges::lower_bound(hashes_, hash);
  if (place == hashes_.end() || *place != hash) return;
  int64_t& first = rows_[static_cast<size_t>(place - hashes_.begin())];
  if (first < 0) first = row;
}

std::optional<int64_t> SeenHashes::first_row(uint64_t hash) const {
  const auto place = std::ranges::lower_bound(hashes_, hash);
  if (place == hashes_.end() || *place != hash) return std::nullopt;
  const int64_t row = rows_[static_cast<size_t>(place - hashes_.begin())];
  return row < 0 ? std::nullopt : std::optional(row);
}

}  // namespace trainer
