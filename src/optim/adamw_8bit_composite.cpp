// The update of 8-bit AdamW with LibTorch's operators, for GPUs that cannot use the kernel.
#include <algorithm>

#include <ATen/ATen.h>

#include "trainer/optim/adamw_8bit.h"

#include "optim/adamw_8bit_arithmetic.h"
#include "optim/moment_codes.h"
#include "optim/stochastic_rounding.h"

namespace trainer {
namespace {

// fp32 [256] on the device.
at::Tensor on_device(const std::array<float, 256>& values, at::TensorOptions options) {
  at::Tensor there = at::empty({256}, options.dtype(at::kFloat));
  if (there.is_meta()) return there;
  return there.copy_(at::tensor(at::ArrayRef<float>(values.data(), values.size())));
}

// The codes of one moment: values and limits on the device.
struct CodesThere {
  CodesThere(const MomentCodes& codes, at::TensorOptions options)
      : values(on_device(codes.values, options)), limits(on_device(codes.limits, options)) {}
  at::Tensor values, limits;
};

// [blocks] to [count]: each element gets what its block has.
at::Tensor spread(const at::Tensor& of_blocks, int64_t count) {
  const at::Tensor all = of_blocks.unsqueeze(1).expand({of_blocks.size(0), kAdamw8bitBlock});
  return all.reshape({-1}).narrow(0, 0, count);
}

// [count] to [blocks].
at::Tensor largest_of_blocks(const at::Tensor& moments) {
  const int64_t blocks = adamw_8bit_blocks(moments.numel());
  const at::Tensor padded =
      at::constant_pad_nd(moments.abs(), {0, blocks * kAdamw8bitBlock - moments.numel()});
  return padded.view({blocks, kAdamw8bitBlock}).amax(1);
}

// The codes of moments [count]: how many limits are at most the scaled value.
at::Tensor codes_of(const at::Tensor& moments, const at::Tensor& absmax, const at::Tensor& limits) {
  const at::Tensor inverse =
      at::where(absmax.ge(1.17549435e-38), absmax.reciprocal(), at::zeros_like(absmax));
  const at::Tensor scaled = moments * spread(inverse, moments.numel());
  if (scaled.is_meta()) return at::empty(scaled.sizes(), scaled.options().dtype(at::kByte));
  return at::bucketize(scaled, limits, /*out_int32=*/true, /*right=*/true).to(at::kByte);
}

// Elements first .. first + count - 1 of flat tensors; `first` begins a block.
void update_piece_coded(const Adamw8bitTensors& t, const at::Tensor& gradient_scale,
                        const Coefficients8bit& c, uint64_t key, int64_t first, int64_t count,
                        bool rehearsal) {
  const auto piece = [&](const at::Tensor& tensor) { return tensor.view({-1}).narrow(0, first, count); };
  const auto blocks = [&](const at::Tensor& absmax) {
    return absmax.narrow(0, first / kAdamw8bitBlock, adamw_8bit_blocks(count));
  };
  const CodesThere average(codes_of_exp_avg(), t.weight.options()),
      square(codes_of_exp_avg_sq(), t.weight.options());
  const auto decoded = [&](const at::Tensor& codes, const at::Tensor& absmax, const CodesThere& there) {
    return there.values.index_select(0, piece(codes).to(at::kInt)).mul_(spread(blocks(absmax), count));
  };
  const at::Tensor g = piece(t.gradient).to(at::kFloat) * gradient_scale;
  const at::Tensor m = decoded(t.exp_avg, t.exp_avg_absmax, average).mul_(c.beta1).add_(g, c.one_minus_beta1);
  const at::Tensor v =
      decoded(t.exp_avg_sq, t.exp_avg_sq_absmax, square).mul_(c.beta2).addcmul_(g, g, c.one_minus_beta2);
  const at::Tensor w = t.master.defined() ? piece(t.master) : piece(t.weight).to(at::kFloat);
  const at::Tensor next = at::addcdiv(w, m, v.sqrt().add_(c.epsilon), -c.step_size).mul_(c.keep);
  const at::Tensor new_w = t.master.defined() ? next : rounded_as(t.weight, next, key, first);
  const at::Tensor absmax = largest_of_blocks(m), absmax_sq = largest_of_blocks(v);
  const at::Tensor codes = codes_of(m, absmax, average.limits),
                   codes_sq = codes_of(v, absmax_sq, square.limits);
  if (rehearsal) return;
  // From here on nothing is allocated: a piece is written completely or, when out of memory, not at all.
  piece(t.exp_avg).copy_(codes);
  piece(t.exp_avg_sq).copy_(codes_sq);
  blocks(t.exp_avg_absmax).copy_(absmax);
  blocks(t.exp_avg_sq_absmax).copy_(absmax_sq);
  if (t.master.defined()) piece(t.master).copy_(new_w);
  piece(t.weight).copy_(new_w);
}

}  // namespace

// Works in pieces of whole blocks, so that temporary tensors stay small. Nothing is read on the host.
void adamw_8bit_update_composite(const Adamw8bitTensors& tensors, const at::Tensor& gradient_scale,
                                 const AdamwUpdate& update, AdamwProgress& progress) {
  Adamw8bitTensors contiguous = tensors;
  contiguous.gradient = tensors.gradient.contiguous();
  const Coefficients8bit coefficients(update);
  while (progress.done < tensors.weight.numel()) {
    const int64_t whole = adamw_8bit_blocks(progress.piece) * kAdamw8bitBlock;
    const int64_t count = std::min(whole, tensors.weight.numel() - progress.done);
    update_piece_coded(contiguous, gradient_scale, coefficients, update.key, progress.done, count,
                       progress.rehearsal);
    progress.done += count;
  }
}

}  // namespace trainer
