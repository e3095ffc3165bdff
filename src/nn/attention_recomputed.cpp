#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/nn/attention.h"
#include "trainer/nn/dropout.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kChunkBytes = 32 << 20;  // of fp32 attention weights

// B batch, H heads, Q queries of the chunk, K keys, D head_dim. All of q, k, v are [B, H, ..., D].
struct Problem {
  at::Tensor q, k, v, bias_weight, bias_buckets, key_lengths, row_keys;
  uint64_t key;
  double scale, p;
  bool causal;

  int64_t queries() const { return q.size(2); }
  int64_t rows_per_chunk() const {
    return std::clamp<int64_t>(kChunkBytes / (4 * q.size(0) * q.size(1) * k.size(2)), 1, queries());
  }

  // Buckets of a chunk's distances: int64 [Q, K].
  at::Tensor chunk_buckets(int64_t first, int64_t rows) const {
    const at::TensorOptions ints = bias_buckets.options();
    const at::Tensor distance = at::arange(k.size(2), ints).unsqueeze(0) -
                                at::arange(first, first + rows, ints).unsqueeze(1) + (queries() - 1);
    return bias_buckets.index({distance});
  }

  // Attention weights before dropout: [B, H, Q, K] in q's type, softmax in fp32.
  at::Tensor weights(const at::Tensor& q_chunk, int64_t first) const {
    const int64_t rows = q_chunk.size(2), keys = k.size(2);
    at::Tensor scores = at::matmul(q_chunk, k.transpose(2, 3));
    if (scale != 1.0) scores.mul_(scale);
    if (bias_weight.defined()) {
      scores.add_(at::embedding(bias_weight, chunk_buckets(first, rows)).permute({2, 0, 1}).unsqueeze(0));
    }
    constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
    if (key_lengths.defined()) {
      scores.masked_fill_(at::arange(keys, key_lengths.options()).ge(key_lengths.view({-1, 1, 1, 1})),
                          minus_infinity);
    }
    if (causal) {
      const at::TensorOptions ints = q.options().dtype(at::kLong);
      const at::Tensor last = at::arange(first, first + rows, ints).add_(keys - queries()).unsqueeze(1);
      scores.masked_fill_(at::arange(keys, ints).unsqueeze(0).gt(last), minus_infinity);
    }
    return at::softmax(scores, -1, at::kFloat).to(q.scalar_type());
  }

  // Keys of the chunk's rows, one for each (sample, head, query).
  at::Tensor chunk_row_keys(int64_t first, int64_t rows) const {
    const at::Tensor heads =
        at::arange(q.size(1), row_keys.options()).mul_(int64_t{1} << 24).view({1, -1, 1});
    return (row_keys.narrow(1, first, rows).unsqueeze(1) + heads).reshape({-1});
  }
};

// A layer's weights [B, H, Q, K] dropped out, or as they are.
at::Tensor drop(const Problem& problem, const at::Tensor& weights, int64_t first) {
  if (problem.p == 0.0) return weights;
  return dropout_apply(weights, problem.chunk_row_keys(first, weights.size(2)), problem.key, problem.p);
}

struct RecomputedAttention : torch::autograd::Function<RecomputedAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& bias_weight,
                            const BiasAndDropout& extra, double scale, bool causal) {
    ctx->save_for_backward(
        {q, k, v, bias_weight.value_or(at::Tensor()), extra.bias_buckets, extra.key_lengths, extra.row_keys});
    ctx->saved_data["key"] = static_cast<int64_t>(extra.key);
    ctx->saved_data["p"] = extra.p;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["causal"] = causal;
    const Problem problem = restore(ctx, {q, k, v, bias_weight.value_or(at::Tensor()), extra.bias_buckets,
                                          extra.key_lengths, extra.row_keys});
    at::Tensor out = at::empty(q.sizes(), q.options());
    for (int64_t first = 0, step = problem.rows_per_chunk(); first < problem.queries(); first += step) {
      const int64_t rows = std::min(step, problem.queries() - first);
      const at::Tensor weights = problem.weights(q.narrow(2, first, rows), first);
      out.narrow(2, first, rows).copy_(at::matmul(drop(problem, weights, first), v));
    }
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Problem problem = restore(ctx, ctx->get_saved_variables());
    const at::Tensor &q = problem.q, &k = problem.k, &v = problem.v;
    at::Tensor gq = at::empty(q.sizes(), q.options());
    at::Tensor gk = at::zeros(k.sizes(), k.options().dtype(at::kFloat)), gv = at::zeros_like(gk);
    at::Tensor g_bias;  // [heads, buckets]
    if (problem.bias_weight.defined() && ctx->needs_input_grad(3)) {
      g_bias = at::zeros({q.size(1), problem.bias_weight.size(0)}, q.options().dtype(at::kFloat));
    }
    for (int64_t first = 0, step = problem.rows_per_chunk(); first < problem.queries(); first += step) {
      const int64_t rows = std::min(step, problem.queries() - first);
      const at::Tensor q_chunk = q.narrow(2, first, rows), g = grads[0].narrow(2, first, rows);
      const at::Tensor weights = problem.weights(q_chunk, first);
      gv.add_(at::matmul(drop(problem, weights, first).transpose(2, 3), g));
      const at::Tensor g_weights = drop(problem, at::matmul(g, v.transpose(2, 3)), first).to(at::kFloat);
      const at::Tensor w = weights.to(at::kFloat);
      const at::Tensor product = g_weights * w;
      const at::Tensor g_scores = product - w * product.sum(-1, /*keepdim=*/true);  // [B, H, Q, K] fp32
      if (g_bias.defined()) {
        g_bias.index_add_(1, problem.chunk_buckets(first, rows).reshape({-1}), g_scores.sum(0).flatten(1));
      }
      const at::Tensor g_narrow =
          (problem.scale == 1.0 ? g_scores : g_scores * problem.scale).to(q.scalar_type());
      gq.narrow(2, first, rows).copy_(at::matmul(g_narrow, k));
      gk.add_(at::matmul(g_narrow.transpose(2, 3), q_chunk));
    }
    const at::Tensor g_bias_weight = g_bias.defined() ? g_bias.t().to(q.scalar_type()) : g_bias;
    return {gq, gk.to(k.scalar_type()), gv.to(v.scalar_type()), g_bias_weight, {}, {}, {}};
  }

 private:
  static Problem restore(AutogradContext* ctx, const variable_list& t) {
    return {t[0],
            t[1],
            t[2],
            t[3],
            t[4],
            t[5],
            t[6],
            static_cast<uint64_t>(ctx->saved_data["key"].toInt()),
            ctx->saved_data["scale"].toDouble(),
            ctx->saved_data["p"].toDouble(),
            ctx->saved_data["causal"].toBool()};
  }
};

}  // namespace

at::Tensor attention_recomputed(const AttentionInputs& in, const BiasAndDropout& extra) {
  const std::optional<at::Tensor> bias =
      extra.bias_weight.defined() ? std::optional(extra.bias_weight) : std::nullopt;
  return RecomputedAttention::apply(in.q, in.k, in.v, bias, extra, in.scale, in.causal);
}

}  // namespace trainer
