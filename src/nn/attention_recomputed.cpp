#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/device/target_device.h"
#include "trainer/nn/attention.h"
#include "trainer/nn/dropout.h"
#include "trainer/nn/matmul.h"

#include "nn/attention_weights.h"
#include "nn/rotate.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kWeightChunkBytes = 32 << 20;  // of fp32 attention weights

// Returns a tensor with any strides as contiguous [batch * heads, rows, head_dim] in the type of products.
at::Tensor by_head(const at::Tensor& x) {
  return at::empty(x.sizes(), x.options().dtype(product_type(x))).copy_(x).flatten(0, 1);
}

// B batch, H heads, Q queries, R of them in a chunk, K keys, D head_dim.
struct Problem {
  at::Tensor q, k, v;                    // [B * H, rows, D], from by_head
  at::Tensor bias_weight, bias_buckets;  // [buckets, H]; int64 [Q + K - 1]
  std::optional<at::Tensor> key_lengths, row_keys;
  int64_t batch = 0;
  bool causal = false;
  WeightsOptions options;

  int64_t queries() const { return q.size(1); }
  int64_t keys() const { return k.size(1); }
  int64_t rows_per_chunk() const {
    return std::clamp<int64_t>(kWeightChunkBytes / (4 * q.size(0) * keys()), 1, queries());
  }

  // For the rows first .. first + rows - 1:
  at::Tensor chunk_buckets(int64_t first, int64_t rows) const {
    return bias_buckets.narrow(0, queries() - rows - first, rows + keys() - 1);
  }
  std::optional<at::Tensor> chunk_row_keys(int64_t first, int64_t rows) const {
    return row_keys ? std::optional(row_keys->narrow(1, first, rows)) : std::nullopt;
  }
  // [B, H, R, K] in the type of products, dropped out with probability p.
  at::Tensor weights(int64_t first, int64_t rows, double p) const {
    const at::Tensor scores = q.narrow(1, first, rows).bmm(k.transpose(1, 2));
    std::optional<at::Tensor> bias;  // [H, R + K - 1]
    if (bias_weight.defined()) {
      bias = bias_weight.t().index_select(1, chunk_buckets(first, rows)).to(q.scalar_type());
    }
    WeightsOptions chunk = options;
    chunk.visible = causal ? first + keys() - queries() + 1 : keys();
    chunk.p = p;
    return attention_weights(scores.unflatten(0, {batch, -1}), bias, key_lengths, chunk_row_keys(first, rows),
                             chunk);
  }
};

void add_to(at::Tensor& sum, const at::Tensor& product) {
  if (sum.defined()) {
    sum.add_(product);
  } else {
    sum = product.to(at::kFloat);
  }
}

// The gradient of the bias: of each bucket and head, summed over the chunks. On a GPU index_add_ would add
// those of equal buckets in any order, so there distances are added up first, and buckets in the end.
class BiasGradient {
 public:
  BiasGradient() = default;
  explicit BiasGradient(const Problem& problem)
      : by_distance_(target_of(problem.q.device()) == c10::kCUDA), buckets_(problem.bias_buckets) {
    std::vector<int64_t> shape = problem.bias_weight.sizes().vec();
    count_ = shape[0];
    if (by_distance_) shape[0] = buckets_.size(0);
    sums_ = at::zeros(shape, problem.bias_weight.options().dtype(at::kFloat));
  }
  bool is_wanted() const { return sums_.defined(); }
  // gradient: [B, H, R + K - 1] of the rows first .. first + rows - 1.
  void add(const Problem& problem, int64_t first, int64_t rows, const at::Tensor& gradient) {
    const at::Tensor chunk = gradient.sum(0).t();
    if (by_distance_) {
      sums_.narrow(0, problem.queries() - rows - first, chunk.size(0)).add_(chunk);
    } else {
      sums_.index_add_(0, problem.chunk_buckets(first, rows), chunk);
    }
  }
  at::Tensor sum() const { return by_distance_ ? sum_by_bucket(sums_, buckets_, count_) : sums_; }

 private:
  bool by_distance_ = false;
  int64_t count_ = 0;
  at::Tensor buckets_, sums_;
};

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
    const Problem problem = restore(ctx, saved);
    at::Tensor out = empty_by_position(q);
    for (int64_t first = 0, step = problem.rows_per_chunk(); first < problem.queries(); first += step) {
      const int64_t rows = std::min(step, problem.queries() - first);
      const at::Tensor weights = problem.weights(first, rows, extra.p);
      out.narrow(2, first, rows)
          .copy_(weights.flatten(0, 1).bmm(problem.v).unflatten(0, {problem.batch, -1}));
    }
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Problem problem = restore(ctx, saved);
    const bool needs_bias = problem.bias_weight.defined() && ctx->needs_input_grad(3);
    const at::Tensor g = by_head(grads[0]);
    at::Tensor gq = empty_by_position(saved[0]), gk = empty_by_position(saved[1]),
               gv = empty_by_position(saved[2]);
    at::Tensor sum_k, sum_v;
    BiasGradient g_bias = needs_bias ? BiasGradient(problem) : BiasGradient();
    for (int64_t first = 0, step = problem.rows_per_chunk(); first < problem.queries(); first += step) {
      const int64_t rows = std::min(step, problem.queries() - first);
      const at::Tensor g_scores = chunk_backward(problem, g, first, rows, sum_v, g_bias);
      gq.narrow(2, first, rows).copy_(g_scores.bmm(problem.k).unflatten(0, {problem.batch, -1}));
      add_to(sum_k, g_scores.transpose(1, 2).bmm(problem.q.narrow(1, first, rows)));
    }
    gk.copy_(sum_k.unflatten(0, {problem.batch, -1}));
    gv.copy_(sum_v.unflatten(0, {problem.batch, -1}));
    return {gq, gk, gv, needs_bias ? g_bias.sum().to(saved[3].scalar_type()) : at::Tensor(), {}, {}, {}};
  }

 private:
  // Returns the gradient of a chunk's scores [B * H, R, K]; adds to the gradients of v and of the bias.
  static at::Tensor chunk_backward(const Problem& problem, const at::Tensor& g_all, int64_t first,
                                   int64_t rows, at::Tensor& sum_v, BiasGradient& g_bias) {
    const at::Tensor g = g_all.narrow(1, first, rows), weights = problem.weights(first, rows, 0.0);
    const std::optional<at::Tensor> row_keys = problem.chunk_row_keys(first, rows);
    const WeightsOptions& options = problem.options;
    {
      const at::Tensor dropped = options.p > 0
                                     ? dropout_apply(weights, keys_of_heads(*row_keys, weights.size(1)),
                                                     static_cast<uint64_t>(options.key), options.p)
                                     : weights;
      add_to(sum_v, dropped.flatten(0, 1).transpose(1, 2).bmm(g));
    }
    const at::Tensor g_weights = g.bmm(problem.v.transpose(1, 2)).unflatten(0, {problem.batch, -1});
    const auto [g_scores, by_distance] =
        attention_weights_backward(g_weights, weights, row_keys, options, g_bias.is_wanted());
    if (g_bias.is_wanted()) g_bias.add(problem, first, rows, by_distance);
    return g_scores.flatten(0, 1);
  }

  static Problem restore(AutogradContext* ctx, const variable_list& saved) {
    const auto optional = [](const at::Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; };
    Problem problem;
    problem.q = by_head(saved[0]);
    problem.k = by_head(saved[1]);
    problem.v = by_head(saved[2]);
    problem.bias_weight = saved[3];
    problem.bias_buckets = saved[4];
    problem.key_lengths = optional(saved[5]);
    problem.row_keys = optional(saved[6]);
    problem.batch = saved[0].size(0);
    problem.causal = ctx->saved_data["causal"].toBool();
    problem.options.scale = ctx->saved_data["scale"].toDouble();
    problem.options.key = ctx->saved_data["key"].toInt();
    problem.options.p = ctx->saved_data["p"].toDouble();
    return problem;
  }
};

}  // namespace

at::Tensor attention_recomputed(const AttentionInputs& in, const BiasAndDropout& extra) {
  const std::optional<at::Tensor> bias =
      extra.bias_weight.defined() ? std::optional(extra.bias_weight) : std::nullopt;
  return RecomputedAttention::apply(in.q, in.k, in.v, bias, extra, in.scale, in.causal);
}

}  // namespace trainer
