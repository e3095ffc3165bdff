#include "ops/attention_weights.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>

#include "base/dropout_mask.h"
#include "device/op.h"
#include "ops/dropout.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

constexpr int64_t kKept = 16;  // as in attention_weights.cu

// Returns the number of threads that share a row: those of a warp, or for long rows those of a block.
int64_t threads_of_row(int64_t keys) { return (keys + 32 * kKept - 1) / (32 * kKept) * 32; }

// The same as in attention_weights.cu.
struct ScoreShape {
  explicit ScoreShape(const at::Tensor& scores)
      : heads(static_cast<int>(scores.size(1))),
        rows(static_cast<int>(scores.size(2))),
        keys(static_cast<int>(scores.size(3))),
        count(static_cast<unsigned>(scores.size(0) * scores.size(1) * scores.size(2))),
        threads(static_cast<unsigned>(threads_of_row(scores.size(3)))) {}

  KernelGrid grid() const {
    constexpr int64_t rows_of_block = 4;
    if (threads > 32) return {count, 1, threads};
    return {(count + rows_of_block - 1) / rows_of_block, 1, rows_of_block * 32};
  }

  int heads, rows, keys;
  unsigned count, threads;
};

// Returns whether the kernels take these scores: rows of up to 16,384 keys, and numbers that fit.
bool kernels_take(const at::Tensor& scores) {
  constexpr int64_t kGridHeight = 65535, kMostThreads = 1024;
  const int64_t pairs = scores.size(0) * scores.size(1), threads = threads_of_row(scores.size(3));
  return pairs <= kGridHeight && threads <= kMostThreads && fits_int(pairs * scores.size(2) * threads);
}

// `tensors` have a row for each row of the scores.
const Kernels& kernels_of_scores(const at::Tensor& scores, std::initializer_list<at::Tensor> tensors) {
  return kernels_for(scores, "attention_weights", width_for(scores.size(3), tensors));
}

// Sums [H, R, K] along its diagonals: [H, R + K - 1], in one order, unlike index_add_ on a GPU. Each row,
// last one first, gets R zeros behind it; read as rows that are one shorter, each begins one further to the
// left than the one before.
at::Tensor sum_by_distance(const at::Tensor& x) {
  const int64_t rows = x.size(1), distances = rows + x.size(2) - 1;
  const at::Tensor wide = at::constant_pad_nd(x.flip(1), {0, rows});
  return wide.flatten(1).narrow(1, 0, rows * distances).view({-1, rows, distances}).sum(1);
}

// Returns the index of (row, key) in a bias of distances: int64 [R, K].
at::Tensor distance_index(const at::Tensor& scores) {
  const int64_t rows = scores.size(2), keys = scores.size(3);
  const at::TensorOptions ints = scores.options().dtype(at::kLong);
  return at::arange(keys, ints).unsqueeze(0) - at::arange(rows, ints).unsqueeze(1) + (rows - 1);
}

// The fallback for scores that the kernels do not take: LibTorch's operators, with more memory and time.
at::Tensor weights_by_operators(const at::Tensor& scores, const OptionalTensor& bias,
                                const OptionalTensor& lengths, const OptionalTensor& row_keys,
                                const WeightsOptions& options) {
  const auto& [scale, visible, key, p] = options;
  const int64_t rows = scores.size(2), keys = scores.size(3);
  const at::TensorOptions ints = scores.options().dtype(at::kLong);
  at::Tensor s = scores * scale;
  if (bias) s.add_(bias->index_select(1, distance_index(scores).flatten()).view({1, -1, rows, keys}));
  at::Tensor hidden = at::arange(keys, ints)
                          .unsqueeze(0)
                          .ge(at::arange(visible, visible + rows, ints).unsqueeze(1));  // [R, K]
  if (lengths) hidden = hidden.logical_or(at::arange(keys, ints).ge(lengths->view({-1, 1, 1, 1})));
  s.masked_fill_(hidden, -std::numeric_limits<float>::infinity());
  const at::Tensor weights = at::softmax(s, -1, at::kFloat).to(scores.scalar_type());
  if (p == 0) return weights;
  return dropout_apply(weights, keys_of_heads(*row_keys, scores.size(1)), static_cast<uint64_t>(key), p);
}

std::tuple<at::Tensor, at::Tensor> gradient_by_operators(const at::Tensor& grad, const at::Tensor& weights,
                                                         const OptionalTensor& row_keys,
                                                         const WeightsOptions& options, bool needs_bias) {
  const auto& [scale, visible, key, p] = options;
  at::Tensor g = grad;
  if (p > 0) {
    g = dropout_apply(grad, keys_of_heads(*row_keys, weights.size(1)), static_cast<uint64_t>(key), p);
  }
  const at::Tensor w = weights.to(at::kFloat), product = g.to(at::kFloat) * w;
  const at::Tensor g_scores = product - w * product.sum(-1, /*keepdim=*/true);
  at::Tensor g_bias;
  if (needs_bias) {
    g_bias = sum_by_distance(g_scores.sum(0)).unsqueeze(0);
  }
  return {(g_scores * scale).to(weights.scalar_type()), g_bias};
}

// Returns the weights and, if wanted, those before dropout.
std::tuple<at::Tensor, at::Tensor> weights_by_kernel(const at::Tensor& scores, const OptionalTensor& bias_,
                                                     const OptionalTensor& lengths_,
                                                     const OptionalTensor& row_keys_,
                                                     const WeightsOptions& options, bool both) {
  const bool dropped = both || options.p > 0;
  const at::Tensor bias = contiguous_or_none(bias_), lengths = contiguous_or_none(lengths_),
                   row_keys = dropped ? row_keys_->contiguous() : at::Tensor();
  const ScoreShape shape(scores);
  const Kernels& kernels = kernels_of_scores(scores, {scores});
  at::Tensor out = at::empty_like(scores), before;
  if (both) before = at::empty_like(scores);
  kernels.start("weights_forward", shape.grid(), elements(scores, scores), elements(bias, scores),
                elements(lengths, scores, at::kLong), elements(row_keys, scores, at::kLong),
                out.mutable_data_ptr(), both ? before.mutable_data_ptr() : nullptr, shape, options.visible,
                static_cast<float>(options.scale), KernelMask(options.key, options.p));
  return {out, before};
}

at::Tensor attention_weights_gpu(const at::Tensor& scores, const OptionalTensor& bias,
                                 const OptionalTensor& lengths, const OptionalTensor& row_keys,
                                 const WeightsOptions& options) {
  if (!kernels_take(scores)) return weights_by_operators(scores, bias, lengths, row_keys, options);
  return std::get<0>(
      weights_by_kernel(scores.contiguous(), bias, lengths, row_keys, options, /*both=*/false));
}

std::tuple<at::Tensor, at::Tensor> attention_weights_both_gpu(const at::Tensor& scores,
                                                              const OptionalTensor& bias,
                                                              const OptionalTensor& lengths,
                                                              const OptionalTensor& row_keys,
                                                              const WeightsOptions& options) {
  if (!kernels_take(scores)) return attention_weights_both_cpu(scores, bias, lengths, row_keys, options);
  return weights_by_kernel(scores.contiguous(), bias, lengths, row_keys, options, /*both=*/true);
}

std::tuple<at::Tensor, at::Tensor> attention_weights_backward_gpu(const at::Tensor& grad,
                                                                  const at::Tensor& weights_,
                                                                  const OptionalTensor& row_keys_,
                                                                  const WeightsOptions& options,
                                                                  bool needs_bias) {
  const at::Tensor g = grad.contiguous(), weights = weights_.contiguous();
  if (!kernels_take(weights)) return gradient_by_operators(g, weights, row_keys_, options, needs_bias);
  const Kernels& kernels = kernels_of_scores(weights, {g, weights});
  const at::Tensor row_keys = options.p > 0 ? row_keys_->contiguous() : at::Tensor();
  const ScoreShape shape(weights);
  const int64_t batch = weights.size(0), heads = weights.size(1), rows = weights.size(2);
  const KernelMask mask(options.key, options.p);
  at::Tensor out = at::empty_like(weights), along, g_bias;
  const at::TensorOptions fp32 = weights.options().dtype(at::kFloat);
  if (needs_bias) along = at::empty({batch, heads, rows}, fp32);
  kernels.start("weights_backward", shape.grid(), elements(g, weights), elements(weights, weights),
                elements(row_keys, weights, at::kLong), out.mutable_data_ptr(),
                needs_bias ? along.mutable_data_ptr() : nullptr, shape, static_cast<float>(options.scale),
                mask);
  if (needs_bias) {
    const int64_t distances = rows + shape.keys - 1;
    g_bias = at::empty({batch, heads, distances}, fp32);
    KernelGrid grid = grid_of(distances);
    grid.y = batch * heads;
    kernels.start("weights_backward_bias", grid, elements(g, weights), elements(weights, weights),
                  elements(row_keys, weights, at::kLong), elements(along, weights, at::kFloat),
                  g_bias.mutable_data_ptr(), shape, mask);
  }
  return {out, g_bias};
}

void add_by_bucket_gpu(const at::Tensor& g_bias, const at::Tensor& by_distance, const at::Tensor& buckets_,
                       bool first) {
  TORCH_CHECK(g_bias.is_contiguous(), "add_by_bucket: a sum that is not contiguous");
  const at::Tensor by = by_distance.contiguous(), buckets = buckets_.contiguous();
  kernels_for(by, "attention_weights", 1)
      .start("add_by_bucket", KernelGrid{by.size(1), g_bias.size(0), 128}, elements(by, by),
             elements(buckets, by, at::kLong), g_bias.mutable_data_ptr(), by.size(0),
             static_cast<int>(by.size(1)), static_cast<int>(by.size(2)), static_cast<int>(first));
}

constexpr Op kAttentionWeights{"trainer::attention_weights", attention_weights_cpu, attention_weights_gpu};
constexpr Op kAttentionWeightsBoth{"trainer::attention_weights_both", attention_weights_both_cpu,
                                   attention_weights_both_gpu};
constexpr Op kAttentionWeightsBackward{"trainer::attention_weights_backward", attention_weights_backward_cpu,
                                       attention_weights_backward_gpu};
constexpr Op kAddByBucket{"trainer::add_by_bucket", add_by_bucket_cpu, add_by_bucket_gpu};

}  // namespace

at::Tensor keys_of_heads(const at::Tensor& row_keys, int64_t heads) {
  return row_keys.unsqueeze(1) +
         at::arange(heads, row_keys.options()).mul_(dropout_key_of_head(1)).view({1, -1, 1});
}

at::Tensor attention_weights(const at::Tensor& scores, const OptionalTensor& bias,
                             const OptionalTensor& lengths, const OptionalTensor& row_keys,
                             const WeightsOptions& options) {
  return kAttentionWeights(scores, bias, lengths, row_keys, options);
}

std::tuple<at::Tensor, at::Tensor> attention_weights_both(const at::Tensor& scores,
                                                          const OptionalTensor& bias,
                                                          const OptionalTensor& lengths,
                                                          const OptionalTensor& row_keys,
                                                          const WeightsOptions& options) {
  return kAttentionWeightsBoth(scores, bias, lengths, row_keys, options);
}

std::tuple<at::Tensor, at::Tensor> attention_weights_backward(const at::Tensor& grad,
                                                              const at::Tensor& weights,
                                                              const OptionalTensor& row_keys,
                                                              const WeightsOptions& options,
                                                              bool needs_bias) {
  return kAttentionWeightsBackward(grad, weights, row_keys, options, needs_bias);
}

void add_by_bucket(const at::Tensor& g_bias, const at::Tensor& by_distance, const at::Tensor& buckets,
                   bool first) {
  kAddByBucket(g_bias, by_distance, buckets, first);
}

}  // namespace trainer
