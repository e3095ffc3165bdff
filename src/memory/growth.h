// Detects memory use that grows from step to step, as with a leak.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace trainer {

struct Growth {
  int64_t bytes_per_step = 0;
  int64_t first_step = 0, last_step = 0;  // the steps between which it was seen
  int64_t from = 0, to = 0;               // bytes in use at these steps
};

// Looks at the memory in use after each step, in groups of ten steps. The lowest value of a group is its
// floor, which does not depend on the lengths of the samples. Five floors in a row that each rise by more
// than the noise count as growth.
class GrowthWatch {
 public:
  // noise: bytes by which a floor may rise in ten steps without counting. skip: steps at the start, while
  // caches fill, that are ignored.
  explicit GrowthWatch(int64_t noise, int64_t skip = 10) : noise_(noise), skip_(skip) {}

  // Call after each step. Returns the growth once, when it is detected; otherwise nullopt.
  std::optional<Growth> add(int64_t step, int64_t bytes_in_use);

 private:
  struct Floor {
    int64_t step, bytes;
  };
  bool rises() const;

  int64_t noise_, skip_, seen_ = 0;
  std::vector<Floor> floors_;  // the last one belongs to the current group
  bool told_ = false;
};

}  // namespace trainer
