// The types that weights, gradients and state may have, and stochastic rounding to bf16: the same bits in
// loops, with LibTorch's operators and in updates.cuh.
#pragma once

#include <bit>
#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include "base/dropout_mask.h"

namespace trainer {

// Calls body.operator()<float or at::BFloat16>(). An undefined tensor counts as fp32.
template <class Body>
void with_type(const at::Tensor& tensor, const Body& body) {
  if (!tensor.defined() || tensor.scalar_type() == at::kFloat) {
    body.template operator()<float>();
  } else {
    TORCH_CHECK(tensor.scalar_type() == at::kBFloat16, "the update of ", tensor.scalar_type(),
                " is not supported");
    body.template operator()<at::BFloat16>();
  }
}

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

}  // namespace trainer
