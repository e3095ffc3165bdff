#include "base/random.h"

#include <bit>

namespace trainer {

Permutation::Permutation(uint64_t size, uint64_t key) : size_(size), key_(key) {
  const int bits = size > 1 ? std::bit_width(size - 1) : 1;
  half_bits_ = (bits + 1) / 2;
}

uint64_t Permutation::at(uint64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t value = index;
  do {  // outside [0, size): continue the walk; the domain is at most 4 times the size
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint64_t round = 0; round < 6; round++) {
      const uint64_t next = left ^ (derive(derive(key_, round), right) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return value;
}

}  // namespace trainer
