#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/device/target_device.h"
#include "trainer/nn/attention.h"

#include "nn/attention_heads.h"
#include "nn/attention_weights.h"
#include "nn/rotate.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kChunkBytesOnCpu = 32 << 20;

// B batch, H heads, Q queries, R of them in a chunk, K keys, D head_dim.
struct Problem {
  at::Tensor q, k, v;                    // [B * H, rows, D], from heads_first()
  at::Tensor bias_weight, bias_buckets;  // [buckets, H]; int64 [Q + K - 1]
  std::optional<at::Tensor> key_lengths, row_keys;
  int64_t batch = 0;
  bool causal = false;
  WeightsOptions options;
  int64_t chunk_bytes = kChunkBytesOnCpu;  // of attention weights, counted in fp32

  int64_t queries() const { return q.size(1); }
  int64_t keys() const { return k.size(1); }
  int64_t rows_per_chunk() const {
    return std::clamp<int64_t>(chunk_bytes / (4 * q.size(0) * keys()), 1, queries());
  }

  // For the rows first .. first + rows - 1:
  at::Tensor chunk_buckets(int64_t first, int64_t rows) const {
    return bias_buckets.narrow(0, queries() - rows - first, rows + keys() - 1);
  }
  std::optional<at::Tensor> chunk_row_keys(int64_t first, int64_t rows) const {
    return row_keys ? std::optional(row_keys->narrow(1, first, rows)) : std::nullopt;
  }
  // [B, H, R, K] in the type of products: after dropout, and before.
  std::tuple<at::Tensor, at::Tensor> weights(int64_t first, int64_t rows, bool both) const {
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
};

// Sums in fp32; a single product stays as it is.
void add_to(at::Tensor& sum, const at::Tensor& product) {
  if (sum.defined()) {
    sum = sum.to(at::kFloat).add_(product);
  } else {
    sum = product;
  }
}

struct RecomputedAttention : torch::autograd::Function<RecomputedAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& bias_weight,
                            const BiasAndDropout& extra, double scale, bool causal) {
    const variable_list saved{
        q, k, v, bias_weight.value_or(at::Tensor()), extra.bias_buckets, extra.key_lengths, extra.row_keys};
    ctx->save_for_backward(saved);
    ctx->saved_data["key"] = static_cast<int64_t>(extra.key);
    ctx->saved_data["p"] = extra.p;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["causal"] = causal;
    ctx->saved_data["chunk_bytes"] = extra.chunk_bytes;
    const Problem problem = restore(ctx, saved, heads_first({q, k, v}));
    at::Tensor out = empty_by_position(q);
    for (int64_t first = 0, step = problem.rows_per_chunk(); first < problem.queries(); first += step) {
      const int64_t rows = std::min(step, problem.queries() - first);
      const at::Tensor weights = std::get<0>(problem.weights(first, rows, /*both=*/false));
      out.narrow(2, first, rows)
          .copy_(weights.flatten(0, 1).bmm(problem.v).unflatten(0, {problem.batch, -1}));
    }
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const variable_list by_head = heads_first({saved[0], saved[1], saved[2], grads[0]});
    const Problem problem = restore(ctx, saved, by_head);
    const bool needs_bias = problem.bias_weight.defined() && ctx->needs_input_grad(3);
    const int64_t step = problem.rows_per_chunk(), queries = problem.queries();
    const at::ScalarType type = saved[0].scalar_type();
    at::Tensor gq;  // of several chunks; that of a single one is moved together with the others
    if (step < queries) gq = empty_by_position(saved[0]);
    at::Tensor sum_q, sum_k, sum_v, g_bias;
    if (needs_bias) {
      g_bias = at::empty(problem.bias_weight.sizes(), problem.bias_weight.options().dtype(at::kFloat));
    }
    for (int64_t first = 0; first < queries; first += step) {
      const int64_t rows = std::min(step, queries - first);
      const at::Tensor g_scores = chunk_backward(problem, by_head[3], first, rows, sum_v, g_bias);
      sum_q = g_scores.bmm(problem.k);
      if (gq.defined()) {
        gq.narrow(2, first, rows).copy_(sum_q.unflatten(0, {problem.batch, -1}));
        sum_q.reset();
      }
      add_to(sum_k, g_scores.transpose(1, 2).bmm(problem.q.narrow(1, first, rows)));
    }
    variable_list out{sum_k, sum_v};
    if (!gq.defined()) out.push_back(sum_q);
    out = heads_last(out, problem.batch, type);
    if (!gq.defined()) gq = out[2];
    return {gq, out[0], out[1], needs_bias ? g_bias.to(saved[3].scalar_type()) : g_bias, {}, {}, {}};
  }

 private:
  // Returns the gradient of a chunk's scores [B * H, R, K]; adds to the gradients of v and of the bias.
  static at::Tensor chunk_backward(const Problem& problem, const at::Tensor& g_all, int64_t first,
                                   int64_t rows, at::Tensor& sum_v, at::Tensor& g_bias) {
    const at::Tensor g = g_all.narrow(1, first, rows);
    const std::optional<at::Tensor> row_keys = problem.chunk_row_keys(first, rows);
    auto [dropped, weights] = problem.weights(first, rows, /*both=*/true);
    add_to(sum_v, dropped.flatten(0, 1).transpose(1, 2).bmm(g));
    dropped.reset();
    const at::Tensor g_weights = g.bmm(problem.v.transpose(1, 2)).unflatten(0, {problem.batch, -1});
    const auto [g_scores, by_distance] =
        attention_weights_backward(g_weights, weights, row_keys, problem.options, g_bias.defined());
    if (g_bias.defined()) add_by_bucket(g_bias, by_distance, problem.chunk_buckets(first, rows), first == 0);
    return g_scores.flatten(0, 1);
  }

  // by_head: q, k and v as heads_first() returns them.
  static Problem restore(AutogradContext* ctx, const variable_list& saved, const variable_list& by_head) {
    const auto optional = [](const at::Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; };
    Problem problem;
    problem.q = by_head[0];
    problem.k = by_head[1];
    problem.v = by_head[2];
    problem.bias_weight = saved[3];
    problem.bias_buckets = saved[4];
    problem.key_lengths = optional(saved[5]);
    problem.row_keys = optional(saved[6]);
    problem.batch = saved[0].size(0);
    problem.causal = ctx->saved_data["causal"].toBool();
    problem.options.scale = ctx->saved_data["scale"].toDouble();
    problem.options.key = ctx->saved_data["key"].toInt();
    problem.options.p = ctx->saved_data["p"].toDouble();
    if (target_of(problem.q.device()) != c10::kCPU) {
      problem.chunk_bytes = ctx->saved_data["chunk_bytes"].toInt();
    }
    return problem;
  }
};

}  // namespace

int64_t attention_chunk_bytes(std::optional<int64_t> limit) {
  constexpr int64_t least = 32 << 20, most = 256 << 20;
  int64_t bytes = most;
  while (limit && bytes > least && bytes > *limit / 32) bytes /= 2;
  return bytes;
}

at::Tensor attention_recomputed(const AttentionInputs& in, const BiasAndDropout& extra) {
  const std::optional<at::Tensor> bias =
      extra.bias_weight.defined() ? std::optional(extra.bias_weight) : std::nullopt;
  return RecomputedAttention::apply(in.q, in.k, in.v, bias, extra, in.scale, in.causal);
}

}  // namespace trainer
