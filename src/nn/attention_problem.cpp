#include "nn/attention_problem.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace trainer {

void add_to(at::Tensor& sum, const at::Tensor& product) {
  if (sum.defined()) {
    sum = sum.to(at::kFloat).add_(product);
  } else {
    sum = product;
  }
}

int64_t AttentionProblem::rows_per_chunk() const {
  return std::clamp<int64_t>(chunk_bytes / (4 * q.size(0) * keys()), 1, queries());
}

at::Tensor AttentionProblem::chunk_buckets(int64_t first, int64_t rows) const {
  return bias_buckets.narrow(0, queries() - rows - first, rows + keys() - 1);
}

std::optional<at::Tensor> AttentionProblem::chunk_row_keys(int64_t first, int64_t rows) const {
  return row_keys ? std::optional(row_keys->narrow(1, first, rows)) : std::nullopt;
}

// Returns the attention weights [B, H, R, K] in the type of products: after dropout, and before.
std::tuple<at::Tensor, at::Tensor> AttentionProblem::weights(int64_t first, int64_t rows, bool both) const {
  const at::Tensor scores = q.narrow(1, first, rows).bmm(k.transpose(1, 2)).unflatten(0, {batch, -1});
  std::optional<at::Tensor> bias;  // [H, R + K - 1]
  if (bias_weight.defined()) {
    bias = bias_weight.t().index_select(1, chunk_buckets(first, rows)).to(q.scalar_type());
  }
  WeightsOptions chunk = options;
  chunk.visible = causal ? first + keys() - queries() + 1 : keys();
  const std::optional<at::Tensor> of_rows = chunk_row_keys(first, rows);
  if (both && options.p > 0) return attention_weights_both(scores, bias, key_lengths, of_rows, chunk);
  const at::Tensor out = attention_weights(scores, bias, key_lengths, of_rows, chunk);
  return {out, out};
}

at::Tensor AttentionProblem::forward(int64_t first, int64_t rows) const {
  return std::get<0>(weights(first, rows, /*both=*/false)).flatten(0, 1).bmm(v);
}

at::Tensor AttentionProblem::backward(const at::Tensor& gradient, int64_t first, int64_t rows,
                                      AttentionSums& sums) const {
  const at::Tensor g = gradient.narrow(1, first, rows);
  const std::optional<at::Tensor> of_rows = chunk_row_keys(first, rows);
  at::Tensor g_scores;
  {
    auto [dropped, before] = weights(first, rows, /*both=*/true);
    add_to(sums.v, dropped.flatten(0, 1).transpose(1, 2).bmm(g));
    dropped.reset();
    const at::Tensor g_weights = g.bmm(v.transpose(1, 2)).unflatten(0, {batch, -1});
    const auto [of_scores, by_distance] =
        attention_weights_backward(g_weights, before, of_rows, options, sums.bias.defined());
    if (sums.bias.defined())
      add_by_bucket(sums.bias, by_distance, chunk_buckets(first, rows), sums.bias_is_empty);
    sums.bias_is_empty = false;
    g_scores = of_scores.flatten(0, 1);
  }
  add_to(sums.k, g_scores.transpose(1, 2).bmm(q.narrow(1, first, rows)));
  return g_scores.bmm(k);
}

}  // namespace trainer
