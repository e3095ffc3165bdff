// Stochastic rounding to bf16: the same bits in loops, with LibTorch's operators and in rounding.cuh.
#pragma once

#include <bit>
#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include "base/random_bits.h"

namespace trainer {

// fp32 -> T. Stochastic rounding: bf16 rounds up with the probability of the part that is cut off. Infinities
// and NaN stay as they are.
template <class T>
inline T rounded(float value, uint32_t /*bits*/) {
  return static_cast<T>(value);
}
template <>
inline at::BFloat16 rounded<at::BFloat16>(float value, uint32_t bits) {
  const uint32_t pattern = std::bit_cast<uint32_t>(value);
  const bool finite = (pattern & 0x7f800000u) != 0x7f800000u;
  const uint32_t sum = finite ? pattern + (bits & 0xffffu) : pattern;
  return at::BFloat16(static_cast<uint16_t>(sum >> 16), at::BFloat16::from_bits());
}

// random_bits for the elements first .. first + count - 1, as int64. The device is that of `options`.
at::Tensor random_bits_tensor(uint64_t key, int64_t first, int64_t count, at::TensorOptions options);

// rounded<> on tensors: returns `value` in the type of `like`. `bits`: 16 random bits per element.
at::Tensor rounded_as(const at::Tensor& like, const at::Tensor& value, const at::Tensor& bits);

// The same with the lower 16 random bits of elements first, first + 1, ...
at::Tensor rounded_as(const at::Tensor& like, const at::Tensor& value, uint64_t key, int64_t first);

}  // namespace trainer
