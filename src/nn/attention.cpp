#include "trainer/nn/attention.h"

#include <cmath>

#include <ATen/ATen.h>

namespace trainer {

at::Tensor sliding_window_mask(int64_t queries, int64_t keys, int64_t window,
                               const at::TensorOptions& options) {
  const at::TensorOptions ints = options.dtype(at::kLong);
  const at::Tensor key = at::arange(keys, ints), query = at::arange(keys - queries, keys, ints).unsqueeze(1);
  const at::Tensor hidden = key.gt(query).logical_or_(key.le(query - window));
  return at::zeros({queries, keys}, options).masked_fill_(hidden, -INFINITY);
}

at::Tensor attention(const AttentionInputs& in) {
  const std::optional<at::Tensor> mask = in.mask.defined() ? std::optional(in.mask) : std::nullopt;
  const int64_t groups = in.q.size(1) / in.k.size(1);
  if (groups > 1 && in.q.size(2) == 1 && (!mask || mask->size(1) == 1)) {
    // A single query of each head: those of a group are as good as queries of one head.
    const at::Tensor q = in.q.unflatten(1, {-1, groups}).squeeze(3);
    return at::scaled_dot_product_attention(q, in.k, in.v, mask, 0.0, false, in.scale)
        .flatten(1, 2)
        .unsqueeze(2);
  }
  if (groups == 1 || !mask) {
    return at::scaled_dot_product_attention(in.q, in.k, in.v, mask, 0.0, in.causal, in.scale, groups > 1);
  }
  // A mask together with grouped heads would fall to a path that keeps the matrix.
  return at::scaled_dot_product_attention(in.q, in.k.repeat_interleave(groups, 1),
                                          in.v.repeat_interleave(groups, 1), mask, 0.0, in.causal, in.scale);
}

}  // namespace trainer
