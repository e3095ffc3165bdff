// What T5's attention computes between its matrix products, on a GPU: attention_weights.cu, or
// LibTorch's operators.
#include <limits>

#include <ATen/ATen.h>

#include "ops/attention_weights.h"
#include "ops/dropout.h"
#include "ops/kernel_mask.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

using TensorPair = std::tuple<at::Tensor, at::Tensor>;

constexpr int64_t kKept = 16;  // as in attention_weights.cu

// How many threads share a row: those of a warp, or for long rows those of a block.
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

// `tensors` have a row for each row of the scores.
const Kernels* kernels_of(const at::Tensor& scores, std::initializer_list<at::Tensor> tensors) {
  constexpr int64_t kGridHeight = 65535, kMostThreads = 1024;
  const int64_t pairs = scores.size(0) * scores.size(1), threads = threads_of_row(scores.size(3));
  if (pairs > kGridHeight || threads > kMostThreads || !fits_int(pairs * scores.size(2) * threads))
    return nullptr;
  return kernels_for(scores, kernel_files::attention_weights, width_for(scores.size(3), tensors));
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

// Returns the weights and, if wanted, those before dropout.
TensorPair by_kernel(const Kernels& kernels, const at::Tensor& scores, const OptionalTensor& bias_,
                     const OptionalTensor& lengths_, const OptionalTensor& row_keys_, double scale,
                     int64_t visible, const KernelMask& mask, bool dropped, bool both) {
  const at::Tensor bias = contiguous_or_none(bias_), lengths = contiguous_or_none(lengths_),
                   row_keys = dropped ? row_keys_->contiguous() : at::Tensor();
  const ScoreShape shape(scores);
  at::Tensor out = at::empty_like(scores), before;
  if (both) before = at::empty_like(scores);
  kernels.start("weights_forward", shape.grid(), elements(scores, scores), elements(bias, scores),
                elements(lengths, scores, at::kLong), elements(row_keys, scores, at::kLong),
                out.mutable_data_ptr(), both ? before.mutable_data_ptr() : nullptr, shape, visible,
                static_cast<float>(scale), mask);
  return {out, before};
}

}  // namespace

at::Tensor sum_by_bucket(const at::Tensor& by_distance, const at::Tensor& buckets, int64_t count) {
  return at::embedding_dense_backward(by_distance, buckets, count, /*padding_idx=*/-1,
                                      /*scale_grad_by_freq=*/false);
}

at::Tensor attention_weights_composite(const at::Tensor& scores, const OptionalTensor& bias,
                                       const OptionalTensor& lengths, const OptionalTensor& row_keys,
                                       double scale, int64_t visible, int64_t key, double p) {
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

TensorPair attention_weights_backward_composite(const at::Tensor& grad, const at::Tensor& weights,
                                                const OptionalTensor& row_keys, double scale, int64_t key,
                                                double p, bool needs_bias) {
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

at::Tensor attention_weights_gpu(const at::Tensor& scores_, const OptionalTensor& bias,
                                 const OptionalTensor& lengths, const OptionalTensor& row_keys, double scale,
                                 int64_t visible, int64_t key, double p) {
  const at::Tensor scores = scores_.contiguous();
  const Kernels* kernels = kernels_of(scores, {scores});
  if (kernels == nullptr) {
    return attention_weights_composite(scores, bias, lengths, row_keys, scale, visible, key, p);
  }
  return std::get<0>(
      by_kernel(*kernels, scores, bias, lengths, row_keys, scale, visible, KernelMask(key, p), p > 0, false));
}

TensorPair attention_weights_both_gpu(const at::Tensor& scores_, const OptionalTensor& bias,
                                      const OptionalTensor& lengths, const OptionalTensor& row_keys,
                                      double scale, int64_t visible, int64_t key, double p) {
  const at::Tensor scores = scores_.contiguous();
  const Kernels* kernels = kernels_of(scores, {scores});
  if (kernels == nullptr) {
    return attention_weights_both_composite(scores, bias, lengths, row_keys, scale, visible, key, p);
  }
  return by_kernel(*kernels, scores, bias, lengths, row_keys, scale, visible, KernelMask(key, p), true, true);
}

TensorPair attention_weights_both_composite(const at::Tensor& scores, const OptionalTensor& bias,
                                            const OptionalTensor& lengths, const OptionalTensor& row_keys,
                                            double scale, int64_t visible, int64_t key, double p) {
  const at::Tensor before = attention_weights(scores, bias, lengths, row_keys, {scale, visible, key, 0.0});
  return {dropout_apply(before, keys_of_heads(*row_keys, scores.size(1)), static_cast<uint64_t>(key), p),
          before};
}

void add_by_bucket_composite(const at::Tensor& g_bias, const at::Tensor& by_distance,
                             const at::Tensor& buckets, bool first) {
  at::Tensor sum = g_bias;
  if (first) sum.zero_();
  sum.index_add_(0, buckets, by_distance.sum(0).t());
}

void add_by_bucket_gpu(const at::Tensor& g_bias, const at::Tensor& by_distance, const at::Tensor& buckets_,
                       bool first) {
  const at::Tensor by = by_distance.contiguous(), buckets = buckets_.contiguous();
  const Kernels* kernels = kernels_for(by, kernel_files::attention_weights, 1);
  if (kernels == nullptr || !g_bias.is_contiguous()) {
    at::Tensor sum = g_bias;
    if (first) sum.zero_();
    sum.add_(sum_by_bucket(by_distance.sum(0).t(), buckets_, sum.size(0)));
    return;
  }
  kernels->start("add_by_bucket", KernelGrid{by.size(1), g_bias.size(0), 128}, elements(by, by),
                 elements(buckets, by, at::kLong), g_bias.mutable_data_ptr(), by.size(0),
                 static_cast<int>(by.size(1)), static_cast<int>(by.size(2)), static_cast<int>(first));
}

TensorPair attention_weights_backward_gpu(const at::Tensor& grad, const at::Tensor& weights_,
                                          const OptionalTensor& row_keys_, double scale, int64_t key,
                                          double p, bool needs_bias) {
  const at::Tensor g = grad.contiguous(), weights = weights_.contiguous();
  const Kernels* kernels = kernels_of(weights, {g, weights});
  if (kernels == nullptr) {
    return attention_weights_backward_composite(g, weights, row_keys_, scale, key, p, needs_bias);
  }
  const at::Tensor row_keys = p > 0 ? row_keys_->contiguous() : at::Tensor();
  const ScoreShape shape(weights);
  const int64_t batch = weights.size(0), heads = weights.size(1), rows = weights.size(2);
  const KernelMask mask(key, p);
  at::Tensor out = at::empty_like(weights), along, g_bias;
  const at::TensorOptions fp32 = weights.options().dtype(at::kFloat);
  if (needs_bias) along = at::empty({batch, heads, rows}, fp32);
  kernels->start("weights_backward", shape.grid(), elements(g, weights), elements(weights, weights),
                 elements(row_keys, weights, at::kLong), out.mutable_data_ptr(),
                 needs_bias ? along.mutable_data_ptr() : nullptr, shape, static_cast<float>(scale), mask);
  if (needs_bias) {
    const int64_t distances = rows + shape.keys - 1;
    g_bias = at::empty({batch, heads, distances}, fp32);
    KernelGrid grid = grid_of(distances);
    grid.y = batch * heads;
    kernels->start("weights_backward_bias", grid, elements(g, weights), elements(weights, weights),
                   elements(row_keys, weights, at::kLong), elements(along, weights, at::kFloat),
                   g_bias.mutable_data_ptr(), shape, mask);
  }
  return {out, g_bias};
}

}  // namespace trainer
