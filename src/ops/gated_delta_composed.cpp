// The gated delta rule and the causal convolution composed of LibTorch's operators, for a GPU.
// Differentiable; nothing in it sums in a free order.
#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/causal_conv.h"
#include "ops/gated_delta.h"

namespace trainer {
namespace {

// The rows of each run, without the padding between them.
std::vector<at::Tensor> rows_of_runs(const at::Tensor& x, const TokenRuns& runs) {
  std::vector<int64_t> sizes;
  int64_t next = 0;
  for (const TokenRun& run : runs) {
    sizes.push_back(run.first - next);
    sizes.push_back(run.tokens);
    next = run.first + run.tokens;
  }
  sizes.push_back(x.size(0) - next);
  const std::vector<at::Tensor> parts = x.split_with_sizes(sizes);  // one gradient for all
  std::vector<at::Tensor> out;
  for (size_t i = 1; i < parts.size(); i += 2) out.push_back(parts[i]);
  return out;
}

// The opposite; 0 in padding.
at::Tensor rows_from_runs(const std::vector<at::Tensor>& parts, const TokenRuns& runs, int64_t rows) {
  const int64_t columns = parts.front().size(1);
  std::vector<at::Tensor> all;
  int64_t next = 0;
  const auto add_zeros = [&](int64_t end) {
    if (end > next) all.push_back(at::zeros({end - next, columns}, parts.front().options()));
  };
  for (size_t i = 0; i < runs.size(); i++) {
    add_zeros(runs[i].first);
    all.push_back(parts[i]);
    next = runs[i].first + runs[i].tokens;
  }
  add_zeros(rows);
  return at::cat(all);
}

// The chunks of all runs: first the first chunk of each run, then the second ones, and so on. The longest
// run comes first, so that the runs that still go on are always the first ones.
struct ChunkOrder {
  explicit ChunkOrder(const TokenRuns& all) : by_length(all.size()) {
    std::iota(by_length.begin(), by_length.end(), size_t{0});
    std::ranges::stable_sort(by_length, std::greater(), [&](size_t run) { return all[run].tokens; });
    const int64_t steps = (all[by_length.front()].tokens + kDeltaChunk - 1) / kDeltaChunk;
    for (int64_t step = 0; step < steps; step++) {
      first.push_back(total);
      const auto goes_on = [&](size_t run) { return all[run].tokens > step * kDeltaChunk; };
      active.push_back(std::ranges::count_if(by_length, goes_on));
      total += active.back();
    }
  }
  std::vector<size_t> by_length;       // runs, the longest first
  std::vector<int64_t> first, active;  // by step: number of the first chunk, and of runs that go on
  int64_t total = 0;
};

// [tokens, columns] -> [chunks, 64, columns], filled up with zeros.
at::Tensor in_chunks(const at::Tensor& x, const TokenRuns& runs, const ChunkOrder& order) {
  std::vector<std::vector<at::Tensor>> pieces;
  for (const at::Tensor& rows : rows_of_runs(x, runs)) {
    const int64_t missing = (kDeltaChunk - rows.size(0) % kDeltaChunk) % kDeltaChunk;
    pieces.push_back(at::constant_pad_nd(rows, {0, 0, 0, missing}).split(kDeltaChunk));
  }
  std::vector<at::Tensor> out;
  for (size_t step = 0; step < order.active.size(); step++) {
    for (int64_t i = 0; i < order.active[step]; i++)
      out.push_back(pieces[order.by_length[static_cast<size_t>(i)]][step]);
  }
  return at::stack(out);
}

// The opposite.
at::Tensor from_chunks(const at::Tensor& chunks, const TokenRuns& runs, const ChunkOrder& order,
                       int64_t rows) {
  const std::vector<at::Tensor> each = chunks.unbind(0);
  std::vector<at::Tensor> out(runs.size());
  for (size_t i = 0; i < runs.size(); i++) {
    std::vector<at::Tensor> own;
    for (size_t step = 0; step < order.active.size() && static_cast<int64_t>(i) < order.active[step]; step++)
      own.push_back(each[static_cast<size_t>(order.first[step]) + i]);
    const size_t run = order.by_length[i];
    out[run] = at::cat(own).narrow(0, 0, runs[run].tokens);
  }
  return rows_from_runs(out, runs, rows);
}

at::Tensor unit(const at::Tensor& x) { return x * (x.square().sum(-1, /*keepdim=*/true) + 1e-6).rsqrt(); }

// [chunks, 64, heads * width] -> [chunks, heads, 64, width]
at::Tensor by_head(const at::Tensor& x, int64_t heads) {
  return x.to(at::kFloat).unflatten(2, {heads, x.size(2) / heads}).transpose(1, 2);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// a^-1 right for unit lower triangular matrices, of which only what is below the diagonal is read. LibTorch's
// operator has no form for meta.
struct SolveUnitLower : torch::autograd::Function<SolveUnitLower> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& right) {
    const at::Tensor x = solve(a, right, /*upper=*/false);
    ctx->save_for_backward({a, x});
    return x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor g = solve(saved[0].transpose(2, 3), grads[0], /*upper=*/true);
    return {at::matmul(g, saved[1].transpose(2, 3)).neg_().tril_(-1), g};
  }

 private:
  static at::Tensor solve(const at::Tensor& a, const at::Tensor& right, bool upper) {
    if (right.is_meta()) return at::empty_like(right);
    return at::linalg_solve_triangular(a, right, upper, /*left=*/true, /*unitriangular=*/true);
  }
};

// The sums of x [.., n] up to each element. The gradient of LibTorch's operator has no form for meta
// (at::flip).
struct RunningSum : torch::autograd::Function<RunningSum> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.cumsum(-1); }
  static variable_list backward(AutogradContext*, variable_list grads) {
    const at::Tensor& g = grads[0];
    const at::Tensor from_end = at::arange(g.size(-1) - 1, -1, -1, g.options().dtype(at::kLong));
    return {g.index_select(-1, from_end).cumsum(-1).index_select(-1, from_end)};
  }
};

at::Tensor states_in_order(const at::Tensor& states, const std::vector<int64_t>& order) {
  return states.index_select(0, at::tensor(order, at::kLong).to(states.device()));
}

}  // namespace

at::Tensor causal_conv_composed(const at::Tensor& x, const at::Tensor& weight, const TokenRuns& runs,
                                bool silu) {
  const int64_t width = weight.size(2);
  std::vector<at::Tensor> padded, out;
  std::vector<int64_t> sizes;
  for (const at::Tensor& rows : rows_of_runs(x, runs)) {
    padded.push_back(at::constant_pad_nd(rows, {0, 0, width - 1, 0}));
    sizes.push_back(padded.back().size(0));
  }
  const at::Tensor all = at::constant_pad_nd(at::cat(padded).to(at::kFloat), {0, 0, 0, width - 1});
  const std::vector<at::Tensor> weights = weight.squeeze(1).to(at::kFloat).unbind(1);
  at::Tensor sum;  // row i: of the rows from i on
  for (int64_t i = 0; i < width; i++) {
    const at::Tensor part = all.narrow(0, i, all.size(0) - width + 1) * weights[static_cast<size_t>(i)];
    sum = sum.defined() ? sum + part : part;
  }
  at::Tensor rounded = sum.to(x.scalar_type());
  if (silu) rounded = at::silu(rounded);
  const std::vector<at::Tensor> parts = rounded.split_with_sizes(sizes);
  for (size_t i = 0; i < parts.size(); i++) out.push_back(parts[i].narrow(0, 0, runs[i].tokens));
  return rows_from_runs(out, runs, x.size(0));
}

DeltaResult gated_delta_composed(const DeltaInputs& in, const DeltaShape& shape, const TokenRuns& runs,
                                 bool wants_last_states) {
  const ChunkOrder order(runs);
  const std::vector<at::Tensor> parts =
      in_chunks(in.qkv, runs, order).split_with_sizes({shape.keys(), shape.keys(), shape.values()}, 2);
  const auto of_value_heads = [&](const at::Tensor& x) {
    return shape.group() == 1 ? x : x.repeat_interleave(shape.group(), 1);
  };
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.key_dim));
  const at::Tensor q = of_value_heads(unit(by_head(parts[0], shape.key_heads)) * scale);
  const at::Tensor k = of_value_heads(unit(by_head(parts[1], shape.key_heads)));
  const at::Tensor v = by_head(parts[2], shape.value_heads);
  const at::Tensor beta =
      in_chunks(in.beta, runs, order).transpose(1, 2).unsqueeze(3);  // [chunks, heads, 64, 1]
  const at::Tensor b =
      RunningSum::apply(in_chunks(in.decay, runs, order).transpose(1, 2));  // [chunks, heads, 64]
  const at::Tensor later = at::ones({kDeltaChunk, kDeltaChunk}, b.options().dtype(at::kBool)).triu(1);
  const at::Tensor d = (b.unsqueeze(3) - b.unsqueeze(2)).masked_fill(later, -INFINITY).exp();
  const at::Tensor a = at::matmul(k * beta, k.transpose(2, 3)) * d, p = at::matmul(q, k.transpose(2, 3)) * d;
  const at::Tensor decayed = b.exp().unsqueeze(3), end = b.narrow(2, kDeltaChunk - 1, 1);
  const std::vector<at::Tensor> solved = SolveUnitLower::apply(a, at::cat({v * beta, k * beta * decayed}, 3))
                                             .split_with_sizes({shape.value_dim, shape.key_dim}, 3);
  const at::Tensor q_read = q * decayed, k_kept = k * (end - b).exp().unsqueeze(3);
  const at::Tensor kept = end.exp().unsqueeze(3);  // [chunks, heads, 1, 1]
  const std::vector<int64_t> run_order(order.by_length.begin(), order.by_length.end());
  at::Tensor state =
      in.first_states.defined()
          ? states_in_order(in.first_states, run_order)
          : at::zeros({std::ssize(runs), shape.value_heads, shape.key_dim, shape.value_dim}, b.options());
  std::vector<at::Tensor> out, last;
  const auto by_step = [&](const at::Tensor& x) { return x.split_with_sizes(order.active); };
  const auto n = by_step(solved[0]), r = by_step(solved[1]), qs = by_step(q_read), ps = by_step(p),
             ks = by_step(k_kept), keeps = by_step(kept);
  for (size_t step = 0; step < order.active.size(); step++) {
    const int64_t ended = state.size(0) - order.active[step];
    if (ended > 0) {
      last.push_back(state.narrow(0, order.active[step], ended));
      state = state.narrow(0, 0, order.active[step]);
    }
    const at::Tensor news = n[step] - at::matmul(r[step], state);
    out.push_back(at::matmul(qs[step], state) + at::matmul(ps[step], news));
    state = state * keeps[step] + at::matmul(ks[step].transpose(2, 3), news);
  }
  DeltaResult result;
  const at::Tensor chunks = at::cat(out).transpose(1, 2).flatten(2).to(in.qkv.scalar_type());
  result.out = from_chunks(chunks, runs, order, in.qkv.size(0));
  if (!wants_last_states) return result;
  last.push_back(state);
  std::ranges::reverse(last);  // those of the longest run first
  std::vector<int64_t> place(runs.size());
  for (size_t i = 0; i < runs.size(); i++) place[order.by_length[i]] = static_cast<int64_t>(i);
  result.last_states = states_in_order(at::cat(last), place);
  return result;
}

}  // namespace trainer
