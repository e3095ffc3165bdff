// The updates of src/optim composed of LibTorch's operators, which the tests compare them with. They have the
// same random bits.
#pragma once

#include <bit>

#include <ATen/ATen.h>

#include "trainer/optim/adafactor.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/adamw_8bit.h"

#include "base/dropout_mask.h"
#include "optim/adafactor_shape.h"
#include "optim/adamw_coefficients.h"
#include "optim/moment_codes.h"

namespace trainer::reference {

// random_bits for the elements 0 .. count - 1, as int64.
inline at::Tensor random_bits_tensor(uint64_t key, int64_t count, at::TensorOptions options) {
  constexpr int64_t low32 = 0xffffffff;
  at::Tensor h = at::arange(count, options.dtype(at::kLong)).bitwise_and_(at::Scalar(low32));
  h.mul_(int64_t{kRandomStride}).add_(static_cast<int64_t>(key & low32)).bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(16)));
  h.mul_(int64_t{kRandomRound1}).bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(at::Scalar(static_cast<int64_t>(key >> 32)));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(15)));
  h.mul_(int64_t{kRandomRound2}).bitwise_and_(at::Scalar(low32));
  return h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(16)));
}

// rounded<> on tensors: returns `value` in the type of `like`. `bits`: 16 random bits per element.
inline at::Tensor rounded_as(const at::Tensor& like, const at::Tensor& value, const at::Tensor& bits) {
  if (like.scalar_type() == at::kFloat) return value;
  const at::Tensor sum = value.view(at::kInt).add(bits.to(at::kInt)).bitwise_and_(at::Scalar(~0xffff));
  return at::where(value.isfinite(), sum.view(at::kFloat), value).to(like.scalar_type());
}

// The same with the lower 16 random bits of the elements.
inline at::Tensor rounded_as(const at::Tensor& like, const at::Tensor& value, uint64_t key) {
  const at::Tensor bits = random_bits_tensor(key, value.numel(), value.options());
  return rounded_as(like, value, bits.bitwise_and_(at::Scalar(0xffff)).view(value.sizes()));
}

// The update of one tensor.
inline void adamw(const AdamwTensors& t, double gradient_scale, const AdamwUpdate& update) {
  const Coefficients c(update);
  const auto flat = [](const at::Tensor& tensor) { return tensor.view({-1}); };
  const at::Tensor g = flat(t.gradient).to(at::kFloat) * gradient_scale;
  const at::Tensor m = at::lerp(flat(t.exp_avg).to(at::kFloat), g, c.one_minus_beta1);
  const at::Tensor v = flat(t.exp_avg_sq).to(at::kFloat).mul(c.beta2).addcmul_(g, g, c.one_minus_beta2);
  const at::Tensor w = t.master.defined() ? flat(t.master) : flat(t.weight).to(at::kFloat);
  const at::Tensor next =
      w.mul(c.keep).addcdiv_(m, v.sqrt().div_(c.root_correction).add_(c.epsilon), -c.step_size);
  const at::Tensor bits = random_bits_tensor(std::rotl(update.key, 32), g.numel(), g.options());
  flat(t.exp_avg).copy_(rounded_as(t.exp_avg, m, bits.bitwise_and(at::Scalar(0xffff))));
  flat(t.exp_avg_sq).copy_(rounded_as(t.exp_avg_sq, v, at::bitwise_right_shift(bits, at::Scalar(16))));
  if (t.master.defined()) flat(t.master).copy_(next);
  flat(t.weight).copy_(t.master.defined() ? next : rounded_as(t.weight, next, update.key));
}

// [blocks] to [count]: each element gets what its block has.
inline at::Tensor spread(const at::Tensor& of_blocks, int64_t count) {
  const at::Tensor all = of_blocks.unsqueeze(1).expand({of_blocks.size(0), kAdamw8bitBlock});
  return all.reshape({-1}).narrow(0, 0, count);
}

// [count] to [blocks].
inline at::Tensor largest_of_blocks(const at::Tensor& moments) {
  const int64_t blocks = adamw_8bit_blocks(moments.numel());
  const at::Tensor padded =
      at::constant_pad_nd(moments.abs(), {0, blocks * kAdamw8bitBlock - moments.numel()});
  return padded.view({blocks, kAdamw8bitBlock}).amax(1);
}

// The codes of moments [count]: how many limits are at most the scaled value.
inline at::Tensor codes_of(const at::Tensor& moments, const at::Tensor& absmax, const at::Tensor& limits) {
  const at::Tensor inverse =
      at::where(absmax.ge(1.17549435e-38), absmax.reciprocal(), at::zeros_like(absmax));
  const at::Tensor scaled = moments * spread(inverse, moments.numel());
  return at::bucketize(scaled, limits, /*out_int32=*/true, /*right=*/true).to(at::kByte);
}

// The update of one tensor whose moments have codes.
inline void adamw_8bit(const Adamw8bitTensors& t, double gradient_scale, const AdamwUpdate& update) {
  const Coefficients8bit c(update);
  const int64_t count = t.weight.numel();
  const auto flat = [](const at::Tensor& tensor) { return tensor.view({-1}); };
  const auto table = [](const std::array<float, 256>& values) {
    return at::tensor(at::ArrayRef<float>(values.data(), values.size()));
  };
  const auto decoded = [&](const at::Tensor& codes, const at::Tensor& absmax, const MomentCodes& map) {
    return table(map.values).index_select(0, flat(codes).to(at::kInt)).mul_(spread(absmax, count));
  };
  const MomentCodes &average = codes_of_exp_avg(), &square = codes_of_exp_avg_sq();
  const at::Tensor g = flat(t.gradient).to(at::kFloat) * gradient_scale;
  const at::Tensor m = decoded(t.exp_avg, t.exp_avg_absmax, average).mul_(c.beta1).add_(g, c.one_minus_beta1);
  const at::Tensor v =
      decoded(t.exp_avg_sq, t.exp_avg_sq_absmax, square).mul_(c.beta2).addcmul_(g, g, c.one_minus_beta2);
  const at::Tensor w = t.master.defined() ? flat(t.master) : flat(t.weight).to(at::kFloat);
  const at::Tensor next = at::addcdiv(w, m, v.sqrt().add_(c.epsilon), -c.step_size).mul_(c.keep);
  t.exp_avg_absmax.copy_(largest_of_blocks(m));
  t.exp_avg_sq_absmax.copy_(largest_of_blocks(v));
  flat(t.exp_avg).copy_(codes_of(m, t.exp_avg_absmax, table(average.limits)));
  flat(t.exp_avg_sq).copy_(codes_of(v, t.exp_avg_sq_absmax, table(square.limits)));
  if (t.master.defined()) flat(t.master).copy_(next);
  flat(t.weight).copy_(t.master.defined() ? next : rounded_as(t.weight, next, update.key));
}

// The update of one tensor. Its second moment is factored over the last two dimensions, if it has two.
inline void adafactor(const AdafactorTensors& t, double gradient_scale, const AdafactorUpdate& update) {
  const AdafactorCoefficients c(update);
  const at::Tensor gradient = t.gradient.to(at::kFloat) * gradient_scale, squares = gradient.square();
  const auto moments = [&](const at::Tensor& kept, const at::Tensor& mean_squares) {
    kept.copy_((mean_squares + c.epsilon) * c.take + kept * c.keep);
  };
  at::Tensor step;
  if (t.column.defined()) {
    moments(t.row, squares.mean(-1));
    moments(t.column, squares.mean(-2));
    const at::Tensor rows = (t.row / t.row.mean(-1, /*keepdim=*/true)).rsqrt();
    step = gradient * rows.unsqueeze(-1) * t.column.rsqrt().unsqueeze(-2);
  } else {
    moments(t.row, squares);
    step = gradient * t.row.rsqrt();
  }
  const at::Tensor w = t.master.defined() ? t.master : t.weight.to(at::kFloat);
  const auto root_mean_square = [](const at::Tensor& x) { return x.square().mean().sqrt(); };
  at::Tensor rate = at::full({}, c.learning_rate);
  if (c.scale_parameter != 0) rate = rate * root_mean_square(w).clamp_min(c.least_scale);
  step = step * (rate / (root_mean_square(step) / c.clip_threshold).clamp_min(1.0));
  if (t.exp_avg.defined()) {
    step = step * c.one_minus_beta1 + t.exp_avg.to(at::kFloat) * c.beta1;
    t.exp_avg.copy_(rounded_as(t.exp_avg, step, std::rotl(update.key, 32)));
  }
  const at::Tensor next = w * (1 - rate * c.weight_decay) - step;
  if (t.master.defined()) t.master.copy_(next);
  t.weight.copy_(t.master.defined() ? next : rounded_as(t.weight, next, update.key));
}

}  // namespace trainer::reference
