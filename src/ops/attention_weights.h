// T5's attention between its two matrix products: bias, softmax and dropout in one pass over the scores.
// Shapes: B batch, H heads, R queries (rows), K keys.
#pragma once

#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace trainer {

using OptionalTensor = std::optional<at::Tensor>;

struct WeightsOptions {
  double scale = 1.0;
  int64_t visible = 0;  // keys that row 0 sees; each next row sees one more. K: every row sees all keys
  int64_t key = 0;      // dropout's
  double p = 0.0;
};

// Returns the softmax of scores * scale + bias over the keys that a row sees, then dropout. scores [B, H, R,
// K]; bias [H, R + K - 1] in the same type, indexed by distance key - row + R - 1; lengths int64 [B]: keys
// from this index on are padding; row_keys int64 [B, R], for p > 0. On the CPU a row's bits depend
// only on its visible scores.
at::Tensor attention_weights(const at::Tensor& scores, const std::optional<at::Tensor>& bias,
                             const std::optional<at::Tensor>& lengths,
                             const std::optional<at::Tensor>& row_keys, const WeightsOptions& options);

// Returns the weights with and without dropout, which backward needs: (after, before). row_keys as above.
std::tuple<at::Tensor, at::Tensor> attention_weights_both(const at::Tensor& scores,
                                                          const OptionalTensor& bias,
                                                          const OptionalTensor& lengths,
                                                          const OptionalTensor& row_keys,
                                                          const WeightsOptions& options);

// Takes the gradient of the dropped-out weights and the weights before dropout. Returns the gradient of the
// scores [B, H, R, K] and, if wanted, of the bias: fp32 [B or 1, H, R + K - 1], to be summed over the first
// dimension.
std::tuple<at::Tensor, at::Tensor> attention_weights_backward(const at::Tensor& grad,
                                                              const at::Tensor& weights,
                                                              const std::optional<at::Tensor>& row_keys,
                                                              const WeightsOptions& options, bool needs_bias);

// Adds the bias's gradient by distance to g_bias, fp32 [buckets, H]; if it is the `first`, what is in g_bias
// is overwritten. buckets int64 [R + K - 1]: the bucket of each distance. On a GPU each sum has a fixed
// order.
void add_by_bucket(const at::Tensor& g_bias, const at::Tensor& by_distance, const at::Tensor& buckets,
                   bool first);

// The dropout keys of all rows, int64 [B, H, R].
at::Tensor keys_of_heads(const at::Tensor& row_keys, int64_t heads);

// The CPU's forms: attention_weights_cpu.cpp.
decltype(attention_weights) attention_weights_cpu;
decltype(attention_weights_both) attention_weights_both_cpu;
decltype(attention_weights_backward) attention_weights_backward_cpu;
decltype(add_by_bucket) add_by_bucket_cpu;

// For parameters that are pointers: an undefined tensor becomes nullptr.
inline at::Tensor contiguous_or_none(const OptionalTensor& tensor) {
  return tensor ? tensor->contiguous() : at::Tensor();
}

}  // namespace trainer
