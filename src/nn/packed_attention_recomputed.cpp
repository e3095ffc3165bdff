// attention_recomputed() for packed samples: each group of them is laid out by head, with padding, only for
// its own products.
#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/device/target_device.h"
#include "trainer/nn/attention.h"
#include "trainer/nn/dropout.h"

#include "nn/attention_problem.h"
#include "nn/padded_heads.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What does not change between forward and backward.
struct PackedLayout : torch::CustomClassHolder {
  std::shared_ptr<const std::vector<AttentionGroup>> groups;
  at::Tensor bias_buckets;
  int64_t heads = 0, longest = 0, chunk_bytes = 0;
  bool causal = false;
  WeightsOptions options;

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
    if (options.p > 0) problem.row_keys = row_keys(group.slots, group.queries.length);
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
                            const c10::intrusive_ptr<PackedLayout>& layout) {
    ctx->save_for_backward({q, k, v, bias_weight.value_or(at::Tensor())});
    ctx->saved_data["layout"] = c10::IValue::make_capsule(layout);
    const at::Tensor out = at::empty_like(q);
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
    return {gq, gk, gv, g_bias.defined() ? g_bias.to(bias_weight.scalar_type()) : g_bias, {}};
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
  return PackedRecomputed::apply(in.q.squeeze(0), in.k.squeeze(0), in.v.squeeze(0), bias, layout)
      .unsqueeze(0);
}

}  // namespace trainer
