// The memory that LibTorch's fused attention allocates, after its sources (2.11:
// native/cpu/FlashAttentionKernel.cpp, native/transformers/cuda/). The CPU part is tested against
// measurements (tests/training/plan_grid_test.cpp).
#include "nn/planned_attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include "device/target_device.h"

namespace trainer {
namespace {

using MaybeTensor = std::optional<at::Tensor>;
using MaybeScale = std::optional<double>;

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// [B, H, S, K] as the operators give it: laid out as [B, S, H, K].
at::Tensor by_position(const at::Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

at::TensorOptions fp32(const at::Tensor& x) { return x.options().dtype(at::kFloat); }

// Tiles of the CPU's kernels.
int64_t query_tile(int64_t queries) {
  return std::min<int64_t>(queries, queries >= 768 ? 256 : queries >= 192 ? 64 : 32);
}
constexpr int64_t kKeyTile = 512;

std::tuple<at::Tensor, at::Tensor> cpu_flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor&,
                                             double, bool, const MaybeTensor&, MaybeScale) {
  const int64_t rows = query_tile(q.size(2)), keys = std::min(kKeyTile, k.size(2)),
                threads = at::get_num_threads();
  const at::Tensor out = at::empty_like(q);
  const at::Tensor lse = at::empty({q.size(0), q.size(2), q.size(1)}, fp32(q)).transpose(1, 2);
  const at::Tensor buffer = at::empty({threads, rows * (keys + 2 + q.size(3))}, fp32(q));
  const bool narrow = q.scalar_type() != at::kFloat;
  const at::Tensor narrow_buffer = at::empty({threads, rows, narrow ? keys : 0}, q.options());
  return {out, lse};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cpu_flash_backward(const at::Tensor& gradient,
                                                                  const at::Tensor& q, const at::Tensor& k,
                                                                  const at::Tensor& v, const at::Tensor&,
                                                                  const at::Tensor&, double, bool,
                                                                  const MaybeTensor&, MaybeScale) {
  const int64_t rows = query_tile(q.size(2)), keys = std::min(kKeyTile, k.size(2)),
                threads = at::get_num_threads();
  const at::Tensor gq = by_position(q), gk = by_position(k), gv = by_position(v);
  const at::Tensor contiguous = gradient.transpose(1, 2).contiguous();
  const at::Tensor buffer = at::empty({threads, 2 * rows * keys}, fp32(q));
  const bool narrow = q.scalar_type() != at::kFloat;
  const at::Tensor narrow_buffer = at::empty({threads, narrow ? 2 * rows * keys : 0}, q.options());
  return {gq, gk, gv};
}

// Multiprocessors of the GPU, which FlashAttention divides its work among. The device of a plan need not be
// here, so this is the number of a large one (B200; an H100 has 132).
constexpr int64_t kMultiprocessors = 148;

int64_t rounded_head(int64_t size) { return round_up(size, size <= 128 ? 32 : 64); }

// Into how many parts FlashAttention-2 divides the keys so that all multiprocessors have work (its
// num_splits_heuristic: the smallest number of parts that is nearly the best).
int64_t key_parts(const at::Tensor& q, const at::Tensor& k) {
  constexpr double slots = 2 * kMultiprocessors;
  const int64_t size = q.size(3), tile = size <= 64 ? 256 : size <= 128 ? 128 : 64;
  const int64_t blocks = q.size(0) * q.size(1) * ((q.size(2) + 63) / 64),
                tiles = (k.size(2) + tile - 1) / tile;
  if (static_cast<double>(blocks) >= 0.8 * slots) return 1;
  const auto in_use = [&](int64_t parts) {
    const double waves = static_cast<double>(blocks * parts) / slots;
    return waves / std::ceil(waves);
  };
  const auto differs = [&](int64_t parts) {
    return parts == 1 || (tiles + parts - 1) / parts != (tiles + parts - 2) / (parts - 1);
  };
  const int64_t most = std::min({int64_t{128}, 2 * kMultiprocessors, tiles});
  double best = 0;
  for (int64_t parts = 1; parts <= most; parts++) best = std::max(best, differs(parts) ? in_use(parts) : 0.0);
  for (int64_t parts = 1; parts <= most; parts++) {
    if (differs(parts) && in_use(parts) >= 0.85 * best) return parts;
  }
  return 1;
}

// Sums of the gradient of q that the backward pass keeps side by side: one, which all add to in any order,
// or, to have an order, several that are added up afterwards.
int64_t gradient_parts(int64_t batch, int64_t heads) {
  if (!at::globalContext().deterministicAlgorithms()) return 1;
  return (kMultiprocessors + batch * heads - 1) / (batch * heads);
}

// FlashAttention-2 on CUDA.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor,
           at::Tensor>
cuda_flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor&, double, bool, bool, MaybeScale) {
  const at::Tensor random_state = at::empty({2}, q.options().dtype(at::kUInt64));
  const int64_t parts = key_parts(q, k);
  at::Tensor part_sums, part_lse;
  if (parts > 1) {
    part_sums = at::empty({parts, q.size(0), q.size(1), q.size(2), rounded_head(q.size(3))}, fp32(q));
    part_lse = at::empty({parts, q.size(0), q.size(1), q.size(2)}, fp32(q));
  }
  return {by_position(q),
          at::empty({q.size(0), q.size(1), q.size(2)}, fp32(q)),
          {},
          {},
          q.sym_size(2),
          k.sym_size(2),
          random_state,
          at::empty({}, random_state.options()),
          {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cuda_flash_backward(
    const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt,
    double, bool, const at::Tensor&, const at::Tensor&, MaybeScale) {
  const int64_t batch = q.size(0), heads = q.size(1), size = q.size(3), rows = round_up(q.size(2), 128);
  const at::Tensor contiguous = gradient.transpose(1, 2).contiguous();
  const at::Tensor gq = by_position(q), gk = by_position(k), gv = by_position(v);
  const at::Tensor row_sums = at::empty({batch, heads, rows}, fp32(q));
  const at::Tensor gq_sum =
      at::empty({gradient_parts(batch, heads), batch, rows, heads, rounded_head(size)}, fp32(q));
  at::Tensor all_gk, all_gv;  // grouped heads: of each head, summed afterwards
  if (k.size(1) != heads) {
    all_gk = at::empty({batch, k.size(2), heads, size}, k.options());
    all_gv = at::empty_like(all_gk);
  }
  return {gq, gk, gv};
}

// The same for packed sequences: [tokens, heads, K], grouped by `starts`.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> cuda_flash_rows(
    const at::Tensor& q, const at::Tensor&, const at::Tensor&, const MaybeTensor&, const MaybeTensor&,
    c10::SymInt, c10::SymInt, double, bool, bool, MaybeScale, std::optional<c10::SymInt>,
    std::optional<c10::SymInt>, const MaybeTensor&, const MaybeTensor&) {
  const at::Tensor random_state = at::empty({2}, q.options().dtype(at::kUInt64));
  return {at::empty(q.sizes(), q.options()),
          at::empty({q.size(1), q.size(0)}, fp32(q)),
          random_state,
          at::empty({}, random_state.options()),
          {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cuda_flash_rows_backward(
    const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor&, const at::Tensor&, const at::Tensor& starts, const at::Tensor&, c10::SymInt,
    c10::SymInt, double, bool, const at::Tensor&, const at::Tensor&, MaybeScale, std::optional<c10::SymInt>,
    std::optional<c10::SymInt>) {
  const int64_t heads = q.size(1), size = q.size(2), samples = starts.numel() - 1,
                rows = q.size(0) + 128 * samples;
  const at::Tensor contiguous = gradient.contiguous();
  const at::Tensor gq = at::empty(q.sizes(), q.options()), gk = at::empty(k.sizes(), k.options()),
                   gv = at::empty(v.sizes(), v.options());
  const at::Tensor row_sums = at::empty({heads, rows}, fp32(q));
  const at::Tensor gq_sum =
      at::empty({gradient_parts(samples, heads), rows, heads, rounded_head(size)}, fp32(q));
  at::Tensor all_gk, all_gv;  // grouped heads: of each head, summed afterwards
  if (k.size(1) != heads) {
    all_gk = at::empty({k.size(0), heads, size}, k.options());
    all_gv = at::empty_like(all_gk);
  }
  return {gq, gk, gv};
}

// Memory-efficient attention on CUDA.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> cuda_efficient(const at::Tensor& q,
                                                                          const at::Tensor&,
                                                                          const at::Tensor&,
                                                                          const MaybeTensor&, bool keep_lse,
                                                                          double, bool, MaybeScale) {
  const at::Tensor seed = at::empty({}, q.options().dtype(at::kLong));
  return {by_position(q), at::empty({q.size(0), q.size(1), keep_lse ? round_up(q.size(2), 32) : 0}, fp32(q)),
          seed, at::empty_like(seed)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> cuda_efficient_backward(
    const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double,
    std::array<bool, 4>, bool, MaybeScale) {
  const at::Tensor contiguous = gradient.transpose(1, 2).contiguous();
  const at::Tensor gq = by_position(q), gk = by_position(k), gv = by_position(v);
  const at::Tensor row_sums = at::empty({q.size(0), q.size(1), q.size(2)}, fp32(q));
  // Its workspace sums in fp32 where the gradients are narrower or do not fit in registers.
  const at::Tensor sums = at::empty({gq.numel() + gk.numel() + gv.numel()}, fp32(q));
  return {gq, gk, gv, {}};
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("_scaled_dot_product_flash_attention_for_cpu", cpu_flash);
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward", cpu_flash_backward);
  library.impl("_scaled_dot_product_flash_attention", cuda_flash);
  library.impl("_scaled_dot_product_flash_attention_backward", cuda_flash_backward);
  library.impl("_flash_attention_forward", cuda_flash_rows);
  library.impl("_flash_attention_backward", cuda_flash_rows_backward);
  library.impl("_scaled_dot_product_efficient_attention", cuda_efficient);
  library.impl("_scaled_dot_product_efficient_attention_backward", cuda_efficient_backward);
}

// The mask as CUDA's kernel needs it: if a row of keys is not a multiple of 16 bytes, the mask is expanded
// for every head and query.
at::Tensor aligned_mask(const at::Tensor& mask, const at::Tensor& q, const at::Tensor& k) {
  const int64_t keys = k.size(2), step = 16 / static_cast<int64_t>(mask.element_size());
  const std::vector<int64_t> whole{q.size(0), q.size(1), q.size(2), keys};
  if (keys % step == 0) return mask.expand(whole);
  return at::empty({whole[0], whole[1], whole[2], round_up(keys, step)}, mask.options()).narrow(3, 0, keys);
}

}  // namespace

at::Tensor planned_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::optional<at::Tensor>& mask, bool causal, double scale, bool grouped) {
  if (target_of(q.device()) == c10::kCPU) {
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, mask, scale));
  }
  if (!mask && q.scalar_type() == at::kBFloat16 && q.size(3) <= 256) {
    return std::get<0>(
        at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal, /*return_debug_mask=*/false, scale));
  }
  if (!grouped) {
    const std::optional<at::Tensor> bias = mask ? std::optional(aligned_mask(*mask, q, k)) : std::nullopt;
    const bool keep = q.requires_grad() || k.requires_grad() || v.requires_grad();
    return std::get<0>(at::_scaled_dot_product_efficient_attention(q, k, v, bias, keep, 0.0, causal, scale));
  }
  return std::get<0>(
      at::_scaled_dot_product_attention_math(q, k, v, mask, 0.0, causal, std::nullopt, scale, grouped));
}

}  // namespace trainer
