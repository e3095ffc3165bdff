#include <algorithm>
#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/target_device.h"
#include "gemm/biased_attention.h"
#include "nn/attention.h"
#include "nn/attention_problem.h"
#include "ops/attention_heads.h"
#include "ops/cpu_products.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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
    at::Tensor out = empty_by_position(q);
    if (const std::optional<BiasedHeads> heads = biased_heads(ctx, saved)) {
      builtin_biased_attention(*heads, out);
      return out;
    }
    const AttentionProblem problem = restore(ctx, saved, heads_first({q, k, v}));
    for (int64_t first = 0, step = problem.rows_per_chunk(); first < problem.queries(); first += step) {
      const int64_t rows = std::min(step, problem.queries() - first);
      out.narrow(2, first, rows).copy_(problem.forward(first, rows).unflatten(0, {problem.batch, -1}));
    }
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const bool needs_bias = saved[3].defined() && ctx->needs_input_grad(3);
    if (const std::optional<BiasedHeads> heads = biased_heads(ctx, saved))
      return builtin_backward(*heads, saved, grads[0], needs_bias);
    const variable_list by_head = heads_first({saved[0], saved[1], saved[2], grads[0]});
    const AttentionProblem problem = restore(ctx, saved, by_head);
    const int64_t step = problem.rows_per_chunk(), queries = problem.queries();
    const at::ScalarType type = saved[0].scalar_type();
    at::Tensor gq;  // of several chunks; that of a single one is moved together with the others
    if (step < queries) gq = empty_by_position(saved[0]);
    AttentionSums sums;
    if (needs_bias) sums.bias = empty_bias_sum(saved[3]);
    at::Tensor sum_q;
    for (int64_t first = 0; first < queries; first += step) {
      const int64_t rows = std::min(step, queries - first);
      sum_q = problem.backward(by_head[3], first, rows, sums);
      if (gq.defined()) {
        gq.narrow(2, first, rows).copy_(sum_q.unflatten(0, {problem.batch, -1}));
        sum_q.reset();
      }
    }
    variable_list out{sums.k, sums.v};
    if (!gq.defined()) out.push_back(sum_q);
    out = heads_last(out, problem.batch, type);
    if (!gq.defined()) gq = out[2];
    return {gq, out[0], out[1], needs_bias ? sums.bias.to(saved[3].scalar_type()) : sums.bias, {}, {}, {}};
  }

 private:
  static WeightsOptions options_of(AutogradContext* ctx) {
    return {.scale = ctx->saved_data["scale"].toDouble(),
            .key = ctx->saved_data["key"].toInt(),
            .p = ctx->saved_data["p"].toDouble()};
  }
  static at::Tensor empty_bias_sum(const at::Tensor& weight) {
    return at::empty(weight.sizes(), weight.options().dtype(at::kFloat));
  }

  // One sample for each row of the batch, without the padding of its keys. Nothing if built-in products do
  // not suit.
  static std::optional<BiasedHeads> biased_heads(AutogradContext* ctx, const variable_list& saved) {
    const int64_t queries = saved[0].size(2), keys = saved[1].size(2);
    BiasedHeads heads(saved[0], saved[1], saved[2]);
    heads.samples.resize(static_cast<size_t>(saved[0].size(0)));
    heads.most_queries = queries;
    heads.most_keys = keys;
    heads.row_keys = saved[6];
    if (!multiplies_builtin(heads.q.scalar_type()) || !can_attend(heads)) return std::nullopt;
    const bool padded = saved[5].defined() && !saved[5].is_meta();
    const at::Tensor lengths = padded ? saved[5].contiguous() : at::Tensor();
    for (size_t row = 0; row < heads.samples.size(); row++) {
      heads.samples[row] = {.row = static_cast<int64_t>(row),
                            .queries = queries,
                            .keys = padded ? lengths.const_data_ptr<int64_t>()[row] : keys};
    }
    heads.set_bias(saved[3], saved[4], queries - 1);
    heads.causal = ctx->saved_data["causal"].toBool();
    heads.ahead = keys - queries;
    const WeightsOptions options = options_of(ctx);
    heads.scale = options.scale;
    heads.dropout_key = options.key;
    heads.p = options.p;
    return heads;
  }

  static variable_list builtin_backward(const BiasedHeads& heads, const variable_list& saved,
                                        const at::Tensor& g_out, bool needs_bias) {
    const BiasedGradients to{g_out, empty_by_position(heads.q), empty_by_position(heads.k),
                             empty_by_position(heads.v)};
    at::Tensor g_bias;
    if (needs_bias) g_bias = empty_bias_sum(saved[3]);
    if (saved[5].defined()) {  // padding
      to.gk.zero_();
      to.gv.zero_();
    }
    const BiasSums sums = builtin_biased_attention_backward(heads, to, needs_bias);
    if (needs_bias) {
      add_by_bucket(g_bias, sums.by_distance, sums.buckets, /*first=*/true);
      g_bias = g_bias.to(saved[3].scalar_type());
    }
    return {to.gq, to.gk, to.gv, g_bias, {}, {}, {}};
  }

  // by_head: q, k and v as heads_first() returns them.
  static AttentionProblem restore(AutogradContext* ctx, const variable_list& saved,
                                  const variable_list& by_head) {
    const auto optional = [](const at::Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; };
    AttentionProblem problem;
    problem.q = by_head[0];
    problem.k = by_head[1];
    problem.v = by_head[2];
    problem.bias_weight = saved[3];
    problem.bias_buckets = saved[4];
    problem.key_lengths = optional(saved[5]);
    problem.row_keys = optional(saved[6]);
    problem.batch = saved[0].size(0);
    problem.causal = ctx->saved_data["causal"].toBool();
    problem.options = options_of(ctx);
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
