// Notices memory that grows from step to step, as a leak does.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace trainer {

struct Growth {
  int64_t bytes_per_step = 0;
  int64_t first_step = 0, last_step = 0;  // between which it was seen
  int64_t from = 0, to = 0;               // bytes in use at these
};

// Looks at what is in use after each step, in stretches of ten: the least of a stretch is the floor that
// samples of many lengths do not move. Five floors in a row that each rise by more than the noise are growth.
class GrowthWatch {
 public:
  // noise: bytes that a floor may rise by in ten steps without being counted. skip: steps at the start, when
  // caches fill, that are not looked at.
  explicit GrowthWatch(int64_t noise, int64_t skip = 10) : noise_(noise), skip_(skip) {}

  // To be called after each step. An answer at most once.
  std::optional<Growth> add(int64_t step, int64_t bytes_in_use);

 private:
  struct Floor {
    int64_t step, bytes;
  };
  bool rises() const;

  int64_t noise_, skip_, seen_ = 0;
  std::vector<Floor> floors_;  // the last one is of the stretch that is under way
  bool told_ = false;
};

}  // namespace trainer
