#include "nn/capped_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/target_device.h"
#include "ops/attention_heads.h"
#include "ops/matmul.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kScoreChunkBytes = 32 << 20;  // bytes of fp32 scores
constexpr int64_t kLeastChunk = 64;             // queries, unless that is too much memory

// Queries that are processed together, with all keys that at least one of them sees.
struct ScoreChunk {
  int64_t first_query, queries, first_key, keys;
  int64_t offset = 0;  // causal: index of query 0's own key among the chunk's keys
};

// B batch, G heads of keys, J queries' heads for each, R queries of a chunk, N its keys, D head_dim.
struct CappedProblem {
  at::Tensor q, k, v;  // [B, G * J, queries, D], [B, G, keys, D]
  at::Tensor mask;     // additive, for all queries at once; undefined: none
  bool causal = false;
  double scale = 1.0, soft_cap = 0.0;
  int64_t window = 0;
  std::vector<int64_t> lengths;

  int64_t batch() const { return k.size(0); }
  int64_t groups() const { return q.size(1) / k.size(1); }

  std::vector<ScoreChunk> chunks() const {
    std::vector<ScoreChunk> list;
    if (!causal) {
      const int64_t queries = q.size(2), keys = k.size(2);
      const int64_t most = kScoreChunkBytes / (4 * q.size(0) * q.size(1) * keys);
      const int64_t step = std::clamp<int64_t>(most, 1, std::max<int64_t>(queries, 1));
      for (int64_t first = 0; first < queries; first += step)
        list.push_back({first, std::min(step, queries - first), 0, keys});
      return list;
    }
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      const int64_t most = kScoreChunkBytes / (4 * q.size(0) * q.size(1) * length);
      const int64_t step =
          std::clamp<int64_t>(most, 1, window > 0 ? std::min(length, std::max(window, kLeastChunk)) : length);
      for (int64_t first = 0; first < length; first += step) {
        const int64_t queries = std::min(step, length - first);
        const int64_t before = window > 0 ? std::min(first, window - 1) : first;
        list.push_back({begin + first, queries, begin + first - before, before + queries, before});
      }
      begin += length;
    }
    return list;
  }

  // [B, G * J, R, D] -> [B * G, J * R, D] without gaps, in the type of products
  at::Tensor query_rows(const at::Tensor& x, const ScoreChunk& chunk) const {
    const at::Tensor rows = x.narrow(2, chunk.first_query, chunk.queries);
    return at::empty(rows.sizes(), rows.options().dtype(product_type(rows)))
        .copy_(rows)
        .view({batch() * k.size(1), groups() * chunk.queries, x.size(3)});
  }
  // [B, G, N, D] -> [B * G, N, D]
  at::Tensor key_rows(const at::Tensor& x, const ScoreChunk& chunk) const {
    const at::Tensor rows = x.narrow(2, chunk.first_key, chunk.keys);
    return at::empty(rows.sizes(), rows.options().dtype(product_type(rows))).copy_(rows).flatten(0, 1);
  }
  // [B * G, J * R, N] as [B, G * J, R, N]
  at::Tensor by_head_and_row(const at::Tensor& x, const ScoreChunk& chunk) const {
    return x.view({batch(), q.size(1), chunk.queries, chunk.keys});
  }

  // tanh(scores / cap), fp32 [B * G, J * R, N]; the scores themselves without a cap
  at::Tensor squashed(const at::Tensor& queries, const at::Tensor& keys) const {
    const at::Tensor scores = queries.bmm(keys.transpose(1, 2)).to(at::kFloat);
    return soft_cap > 0 ? scores.mul_(scale / soft_cap).tanh_() : scores.mul_(scale);
  }
  // Softmax of the capped scores, of the same shape.
  at::Tensor weights(const at::Tensor& squashed, const ScoreChunk& chunk) const {
    const at::Tensor capped = soft_cap > 0 ? squashed * soft_cap : squashed;  // without: changed in place
    const at::Tensor view = by_head_and_row(capped, chunk);
    if (mask.defined()) view.add_(mask_of(chunk));
    if (causal) view.masked_fill_(hidden(chunk), -INFINITY);
    return at::softmax(capped, -1);
  }
  // The gradient of the scores, from that of the capped ones, which it overwrites.
  at::Tensor through_cap(const at::Tensor& gradient, const at::Tensor& squashed) const {
    if (soft_cap == 0) return gradient.mul_(scale);
    return gradient.mul_(squashed.square().neg_().add_(1).mul_(scale));
  }

 private:
  at::Tensor mask_of(const ScoreChunk& chunk) const {
    const bool by_query = mask.dim() >= 2 && mask.size(-2) > 1;
    return by_query ? mask.narrow(-2, chunk.first_query, chunk.queries) : mask;
  }
  // bool [R, N]
  at::Tensor hidden(const ScoreChunk& chunk) const {
    const at::TensorOptions ints = q.options().dtype(at::kLong).requires_grad(false);
    const at::Tensor key = at::arange(chunk.keys, ints);
    const at::Tensor own = at::arange(chunk.offset, chunk.offset + chunk.queries, ints).unsqueeze(1);
    const at::Tensor later = key.gt(own);
    return window > 0 ? later.logical_or(key.le(own - window)) : later;
  }
};

struct CappedAttention : torch::autograd::Function<CappedAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& mask, double scale,
                            bool causal, const ScoreCap& cap) {
    const variable_list saved{q, k, v, mask.value_or(at::Tensor())};
    ctx->save_for_backward(saved);
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["causal"] = causal;
    ctx->saved_data["soft_cap"] = cap.soft_cap;
    ctx->saved_data["window"] = cap.window;
    ctx->saved_data["lengths"] = cap.lengths;
    const CappedProblem problem = restore(ctx, saved);
    const at::Tensor out = empty_by_position(q);
    for (const ScoreChunk& chunk : problem.chunks()) {
      const at::Tensor keys = problem.key_rows(k, chunk), values = problem.key_rows(v, chunk);
      const at::Tensor weights = problem.weights(problem.squashed(problem.query_rows(q, chunk), keys), chunk);
      const at::Tensor mixed = weights.to(values.scalar_type()).bmm(values);
      put(out, mixed, chunk.first_query, chunk.queries);
    }
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const CappedProblem problem = restore(ctx, saved);
    const at::Tensor &q = problem.q, &k = problem.k, &v = problem.v;
    const at::Tensor gq = empty_by_position(q), gk = empty_by_position(k), gv = empty_by_position(v);
    const at::Tensor sum_k = at::zeros(k.sizes(), k.options().dtype(at::kFloat)),
                     sum_v = at::zeros_like(sum_k);
    for (const ScoreChunk& chunk : problem.chunks()) {
      const at::Tensor queries = problem.query_rows(q, chunk), keys = problem.key_rows(k, chunk),
                       values = problem.key_rows(v, chunk), g = problem.query_rows(grads[0], chunk);
      const at::Tensor squashed = problem.squashed(queries, keys);
      const at::Tensor weights = problem.weights(squashed, chunk);
      add(sum_v, weights.to(g.scalar_type()).transpose(1, 2).bmm(g), chunk);
      const at::Tensor g_weights = g.bmm(values.transpose(1, 2)).to(at::kFloat);
      const at::Tensor along = (g_weights * weights).sum(-1, /*keepdim=*/true);
      const at::Tensor by_weight = (g_weights - along).mul_(weights);
      const at::Tensor g_scores = problem.through_cap(by_weight, squashed).to(queries.scalar_type());
      put(gq, g_scores.bmm(keys), chunk.first_query, chunk.queries);
      add(sum_k, g_scores.transpose(1, 2).bmm(queries), chunk);
    }
    gk.copy_(sum_k);
    gv.copy_(sum_v);
    return {gq, gk, gv, {}, {}, {}, {}};
  }

 private:
  // rows [B * G, J * R, D] into queries first, ... of all [B, G * J, queries, D]
  static void put(const at::Tensor& all, const at::Tensor& rows, int64_t first, int64_t queries) {
    all.narrow(2, first, queries).copy_(rows.view({all.size(0), all.size(1), queries, all.size(3)}));
  }
  static void add(const at::Tensor& sum, const at::Tensor& rows, const ScoreChunk& chunk) {
    sum.narrow(2, chunk.first_key, chunk.keys).add_(rows.view({sum.size(0), sum.size(1), chunk.keys, -1}));
  }

  static CappedProblem restore(AutogradContext* ctx, const variable_list& saved) {
    CappedProblem problem;
    problem.q = saved[0];
    problem.k = saved[1];
    problem.v = saved[2];
    problem.mask = saved[3];
    problem.scale = ctx->saved_data["scale"].toDouble();
    problem.causal = ctx->saved_data["causal"].toBool();
    problem.soft_cap = ctx->saved_data["soft_cap"].toDouble();
    problem.window = ctx->saved_data["window"].toInt();
    problem.lengths = ctx->saved_data["lengths"].toIntVector();
    if (problem.lengths.empty()) problem.lengths = {problem.q.size(2)};
    return problem;
  }
};

}  // namespace

bool is_too_wide_for_fused(const at::Tensor& q) {
  constexpr int64_t widest = 256;  // FlashAttention's
  return target_of(q.device()) == c10::kCUDA && q.size(3) > widest;
}

at::Tensor capped_attention(const AttentionInputs& in, const ScoreCap& cap) {
  TORCH_CHECK(!in.causal || (!in.mask.defined() && in.q.size(2) == in.k.size(2)),
              "capped_attention: causal is for as many queries as keys and no mask");
  const std::optional<at::Tensor> mask = in.mask.defined() ? std::optional(in.mask) : std::nullopt;
  return CappedAttention::apply(in.q, in.k, in.v, mask, in.scale, in.causal, cap);
}

}  // namespace trainer
