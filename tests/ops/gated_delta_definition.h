// The gated delta rule by its definition, token by token.
#pragma once

#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "ops/gated_delta.h"
#include "support/reference.h"

namespace trainer {

// S = e^decay S;  S += k^T (beta (v - k S));  out = q S, for each run and value head.
inline at::Tensor by_definition(const Tensors& in, const DeltaShape& s, const TokenRuns& runs) {
  const auto parts = in[0].split_with_sizes({s.keys(), s.keys(), s.values()}, 1);
  const auto unit = [](const at::Tensor& x) { return x * (x.square().sum(-1, true) + 1e-6).rsqrt(); };
  const at::Tensor q = unit(parts[0].unflatten(1, {s.key_heads, s.key_dim})) / std::sqrt(s.key_dim);
  const at::Tensor k = unit(parts[1].unflatten(1, {s.key_heads, s.key_dim}));
  const at::Tensor v = parts[2].unflatten(1, {s.value_heads, s.value_dim});
  std::vector<at::Tensor> rows(static_cast<size_t>(in[0].size(0)), at::zeros({s.values()}, in[0].options()));
  for (const TokenRun& run : runs) {
    at::Tensor state = at::zeros({s.value_heads, s.key_dim, s.value_dim}, in[0].options());
    for (int64_t t = run.first; t < run.first + run.tokens; t++) {
      const at::Tensor kt = k[t].repeat_interleave(s.group(), 0), qt = q[t].repeat_interleave(s.group(), 0);
      state = state * in[1][t].exp().view({-1, 1, 1});
      const at::Tensor known = (state * kt.unsqueeze(2)).sum(1),
                       change = (v[t] - known) * in[2][t].unsqueeze(1);
      state = state + kt.unsqueeze(2) * change.unsqueeze(1);
      rows[static_cast<size_t>(t)] = (state * qt.unsqueeze(2)).sum(1).flatten();
    }
  }
  return at::stack(rows);
}

}  // namespace trainer
