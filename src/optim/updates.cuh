// Shared by the kernels of updates and of the gradient norm: a launch for many tensors,
// and stochastic rounding. A table has a row for each (src/optim/kernel_groups.h): its
// pointers, `count` elements and its `first_block`. A block works on a range of one
// tensor.
#pragma once
#include "device/random_bits.cuh"

// Returns the number of the row that this block works on: the last one that begins at or before the block.
// A row without elements has no blocks.
template <class Row>
DEVICE int row_of_block(const Row* rows, int row_count) {
  int low = 0, high = row_count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (rows[middle].first_block <= static_cast<int>(blockIdx.x)) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Elements first .. last - 1. Those before wide_last are moved four at once.
struct Range {
  long long first, wide_last, last;
};

DEVICE bool is_aligned(const void* pointer) { return reinterpret_cast<unsigned long long>(pointer) % 16 == 0; }

template <class Row>
DEVICE Range range_of_block(const Row& row, int block_elements, bool aligned) {
  Range range;
  range.first = static_cast<long long>(static_cast<int>(blockIdx.x) - row.first_block) * block_elements;
  range.last = range.first + block_elements < row.count ? range.first + block_elements : row.count;
  range.wide_last = aligned ? range.last - (range.last - range.first) % 4 : range.first;
  return range;
}

// fp32 to T by random bits, as in src/optim/element_types.h: bf16 rounds up with the probability of the part
// that is cut off. Infinities and NaN stay as they are.
template <class T>
DEVICE T rounded_by(float value, unsigned /*bits*/) {
  return value;
}
template <>
DEVICE bf16 rounded_by<bf16>(float value, unsigned bits) {
  const unsigned pattern = __float_as_uint(value);
  const bool finite = (pattern & 0x7f800000u) != 0x7f800000u;
  return {static_cast<unsigned short>((finite ? pattern + (bits & 0xffffu) : pattern) >> 16)};
}
