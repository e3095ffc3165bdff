// Counts how often each length occurs. Gives exact percentiles in little memory, whatever the number of
// samples.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace trainer {

class LengthCounts {
 public:
  void add(int64_t length, int64_t times = 1);
  void merge(const LengthCounts& other);

  int64_t count() const { return count_; }
  int64_t total() const { return total_; }
  double mean() const;  // 0 when nothing was added; the same for the next two
  int64_t longest() const;
  // Returns the shortest length that `share` (0 to 1) of all samples do not exceed: the nearest-rank
  // percentile.
  int64_t percentile(double share) const;

  struct Bucket {
    int64_t from, to, count;  // lengths from..to
  };
  // Buckets 0, 1, 2-3, 4-7, 8-15 and so on, from the first to the last that is not empty.
  std::vector<Bucket> histogram() const;

  // Returns every length that occurs and how often, in ascending order.
  std::map<int64_t, int64_t> counts() const;

 private:
  std::vector<int64_t> short_;       // by length
  std::map<int64_t, int64_t> long_;  // very long texts (megabytes)
  int64_t count_ = 0, total_ = 0;
};

}  // namespace trainer
