#include "optim/stochastic_rounding.h"

#include <ATen/ATen.h>

namespace trainer {

at::Tensor random_bits_tensor(uint64_t key, int64_t first, int64_t count, at::TensorOptions options) {
  constexpr int64_t low32 = 0xffffffff;
  at::Tensor h = at::arange(first, first + count, options.dtype(at::kLong)).bitwise_and_(at::Scalar(low32));
  h.mul_(int64_t{kRandomStride}).add_(static_cast<int64_t>(key & low32)).bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(16)));
  h.mul_(int64_t{kRandomRound1}).bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(at::Scalar(static_cast<int64_t>(key >> 32)));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(15)));
  h.mul_(int64_t{kRandomRound2}).bitwise_and_(at::Scalar(low32));
  return h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(16)));
}

at::Tensor rounded_as(const at::Tensor& like, const at::Tensor& value, const at::Tensor& bits) {
  if (like.scalar_type() == at::kFloat) return value;
  const at::Tensor sum = value.view(at::kInt).add(bits.to(at::kInt)).bitwise_and_(at::Scalar(~0xffff));
  return at::where(value.isfinite(), sum.view(at::kFloat), value).to(like.scalar_type());
}

at::Tensor rounded_as(const at::Tensor& like, const at::Tensor& value, uint64_t key, int64_t first) {
  const at::Tensor bits = random_bits_tensor(key, first, value.numel(), value.options());
  return rounded_as(like, value, bits.bitwise_and_(at::Scalar(0xffff)).view(value.sizes()));
}

}  // namespace trainer
