// attention_recomputed() for packed samples: sample by sample with built-in products, or each group of them
// laid out by head, with padding, only for its own products.
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
#include "ops/dropout.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A sample's tokens in the packed row.
struct TokensOfSample {
  int64_t first = 0, count = 0;
};

std::vector<TokensOfSample> tokens_of(const PaddedRows& padded, int64_t samples) {
  std::vector<TokensOfSample> out(static_cast<size_t>(samples));
  if (padded.rows.is_meta()) return out;
  const int64_t *row = padded.rows.const_data_ptr<int64_t>(),
                *place = padded.places.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < padded.rows.numel(); i++) {
    TokensOfSample& sample = out[static_cast<size_t>(place[i] / padded.length)];
    if (sample.count++ == 0) sample.first = row[i];
  }
  return out;
}

// Arguments that forward and backward share.
struct PackedLayout : torch::CustomClassHolder {
  std::shared_ptr<const std::vector<AttentionGroup>> groups;
  at::Tensor bias_buckets;
  int64_t heads = 0, longest = 0, chunk_bytes = 0;
  bool causal = false;
  WeightsOptions options;

  // [tokens, heads * head_dim] as [1, heads, tokens, head_dim].
  at::Tensor by_head(const at::Tensor& x) const {
    return x.unflatten(1, {heads, -1}).transpose(0, 1).unsqueeze(0);
  }

  // The attention of all samples. Nothing if built-in products do not suit.
  std::optional<BiasedHeads> biased_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                          const at::Tensor& bias_weight, const at::Tensor& row_keys) const {
    BiasedHeads all(by_head(q), by_head(k), by_head(v));
    int64_t samples = 0;
    for (const AttentionGroup& group : *groups) {
      samples += group.samples;
      all.most_queries = std::max(all.most_queries, group.queries.length);
      all.most_keys = std::max(all.most_keys, group.keys.length);
    }
    all.samples.resize(static_cast<size_t>(samples));
    all.row_keys = row_keys;
    if (!multiplies_builtin(all.q.scalar_type()) || !can_attend(all)) return std::nullopt;
    auto sample = all.samples.begin();
    for (const AttentionGroup& group : *groups) {
      const std::vector<TokensOfSample> queries = tokens_of(group.queries, group.samples),
                                        keys = tokens_of(group.keys, group.samples);
      for (size_t i = 0; i < queries.size(); i++) {
        *sample++ = {.first_query = queries[i].first,
                     .queries = queries[i].count,
                     .first_key = keys[i].first,
                     .keys = keys[i].count};
      }
    }
    all.set_bias(bias_weight, bias_buckets, longest - 1);
    all.causal = causal;
    all.scale = options.scale;
    all.dropout_key = options.key;
    all.p = options.p;
    return all;
  }

  // The attention of a group whose tokens are rows of q, k and v [tokens, heads * head_dim].
  AttentionProblem problem(const AttentionGroup& group, const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, const at::Tensor& bias_weight) const {
    AttentionProblem problem;
    problem.q = padded_heads(q, group.queries, group.samples, heads);
    problem.k = padded_heads(k, group.keys, group.samples, heads);
    problem.v = padded_heads(v, group.keys, group.samples, heads);
    problem.batch = group.samples;
    problem.causal = causal;
    problem.options = options;
    if (!causal && group.keys.places.numel() < group.samples * group.keys.length)
      problem.key_lengths = group.key_lengths;
    if (options.p > 0) problem.row_keys = row_keys(group.dropout_keys, group.queries.length);
    if (bias_weight.defined()) {
      const int64_t length = group.queries.length;
      problem.bias_weight = bias_weight;
      problem.bias_buckets = bias_buckets.narrow(0, longest - length, 2 * length - 1);
    }
    if (target_of(q.device()) != c10::kCPU) problem.chunk_bytes = chunk_bytes;
    return problem;
  }
};

struct PackedRecomputed : torch::autograd::Function<PackedRecomputed> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& bias_weight,
                            const at::Tensor& row_keys, const c10::intrusive_ptr<PackedLayout>& layout) {
    ctx->save_for_backward({q, k, v, bias_weight.value_or(at::Tensor()), row_keys});
    ctx->saved_data["layout"] = c10::IValue::make_capsule(layout);
    const at::Tensor out = at::empty_like(q);
    if (const auto all = layout->biased_heads(q, k, v, bias_weight.value_or(at::Tensor()), row_keys)) {
      builtin_biased_attention(*all, layout->by_head(out));
      return out;
    }
    for (const AttentionGroup& group : *layout->groups) {
      const AttentionProblem problem = layout->problem(group, q, k, v, bias_weight.value_or(at::Tensor()));
      const int64_t step = problem.rows_per_chunk(), queries = problem.queries();
      at::Tensor mixed;
      if (step < queries) mixed = at::empty_like(problem.q);
      for (int64_t first = 0; first < queries; first += step) {
        const int64_t rows = std::min(step, queries - first);
        const at::Tensor part = problem.forward(first, rows);
        if (step < queries) {
          mixed.narrow(1, first, rows).copy_(part);
        } else {
          mixed = part;
        }
      }
      put_back(out, mixed, group.queries, layout->heads);
    }
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto layout =
        c10::static_intrusive_pointer_cast<PackedLayout>(ctx->saved_data["layout"].toCapsule());
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &bias_weight = saved[3];
    const at::Tensor gq = at::empty_like(q), gk = at::empty_like(k), gv = at::empty_like(v);
    at::Tensor g_bias;
    if (bias_weight.defined() && ctx->needs_input_grad(3))
      g_bias = at::empty(bias_weight.sizes(), bias_weight.options().dtype(at::kFloat));
    const auto gradients = [&]() -> variable_list {
      return {gq, gk, gv, g_bias.defined() ? g_bias.to(bias_weight.scalar_type()) : g_bias, {}, {}};
    };
    if (const auto all = layout->biased_heads(q, k, v, bias_weight, saved[4])) {
      const BiasedGradients to{layout->by_head(grads[0]), layout->by_head(gq), layout->by_head(gk),
                               layout->by_head(gv)};
      const BiasSums sums = builtin_biased_attention_backward(*all, to, g_bias.defined());
      if (g_bias.defined()) add_by_bucket(g_bias, sums.by_distance, sums.buckets, /*first=*/true);
      return gradients();
    }
    bool bias_is_empty = true;
    for (const AttentionGroup& group : *layout->groups) {
      const AttentionProblem problem = layout->problem(group, q, k, v, bias_weight);
      const at::Tensor gradient = padded_heads(grads[0], group.queries, group.samples, layout->heads);
      AttentionSums sums;
      sums.bias = g_bias;
      sums.bias_is_empty = bias_is_empty;
      const int64_t step = problem.rows_per_chunk(), queries = problem.queries();
      at::Tensor sum_q;
      if (step < queries) sum_q = at::empty_like(problem.q);
      for (int64_t first = 0; first < queries; first += step) {
        const int64_t rows = std::min(step, queries - first);
        const at::Tensor part = problem.backward(gradient, first, rows, sums);
        if (step < queries) {
          sum_q.narrow(1, first, rows).copy_(part);
        } else {
          sum_q = part;
        }
      }
      bias_is_empty = false;
      put_back(gq, sum_q, group.queries, layout->heads);
      put_back(gk, sums.k, group.keys, layout->heads);
      put_back(gv, sums.v, group.keys, layout->heads);
    }
    return gradients();
  }
};

}  // namespace

at::Tensor packed_attention_recomputed(const PackedAttentionInputs& in, const BiasAndDropout& extra) {
  auto layout = c10::make_intrusive<PackedLayout>();
  layout->groups = in.groups;
  layout->bias_buckets = extra.bias_buckets;
  layout->heads = in.heads;
  for (const AttentionGroup& group : *in.groups)
    layout->longest = std::max(layout->longest, group.queries.length);
  layout->chunk_bytes = extra.chunk_bytes;
  layout->causal = in.causal;
  layout->options.scale = in.scale;
  layout->options.key = static_cast<int64_t>(extra.key);
  layout->options.p = extra.p;
  const std::optional<at::Tensor> bias =
      extra.bias_weight.defined() ? std::optional(extra.bias_weight) : std::nullopt;
  return PackedRecomputed::apply(in.q.squeeze(0), in.k.squeeze(0), in.v.squeeze(0), bias, extra.row_keys,
                                 layout)
      .unsqueeze(0);
}

}  // namespace trainer
