// Attention to cached keys: cases, and their values in fp64.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/cached_attention.h"
#include "support/reference.h"

namespace trainer {

struct Cached {
  at::Tensor q, k, v, table;
  std::vector<int64_t> lengths;
  NewKeys added;

  CachedKeys keys() const { return {k, v, table}; }
  int64_t slot(int64_t row, int64_t position) const { return table[row][2 + position].item<int64_t>(); }
};

// Rows of different lengths, each position in another slot.
inline Cached scattered(Random& random, int64_t heads, int64_t kv_heads, int64_t head_dim,
                        at::ScalarType type, const std::vector<int64_t>& lengths = {1, 7, 40, 23}) {
  const int64_t rows = std::ssize(lengths), slots = 6, positions = std::ranges::max(lengths) + 8;
  const auto normal = [&](at::IntArrayRef shape) { return random.normal(shape).to(type); };
  Cached c{normal({rows, heads, head_dim}),
           normal({slots, kv_heads, positions, head_dim}),
           normal({slots, kv_heads, positions, head_dim}),
           at::empty({rows, 2 + positions}, at::kInt),
           lengths,
           {normal({rows, kv_heads, head_dim}), normal({rows, kv_heads, head_dim})}};
  // No two rows end in the same place.
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t position = 0; position < positions; position++)
      c.table[row][2 + position] = (row * 5 + position * 3) % slots;
    c.table[row][0] = lengths[static_cast<size_t>(row)];
    c.table[row][1] = c.slot(row, lengths[static_cast<size_t>(row)] - 1);
  }
  return c;
}

// One row in fp64, from keys that are gathered position by position.
inline at::Tensor expected_row(const Cached& c, int64_t row, const CachedScores& how) {
  const int64_t length = c.lengths[static_cast<size_t>(row)], groups = c.q.size(1) / c.k.size(1);
  const auto gathered = [&](const at::Tensor& cache, const at::Tensor& added) {
    std::vector<at::Tensor> all;
    for (int64_t position = 0; position + 1 < length; position++)
      all.push_back(cache[c.slot(row, position)].select(1, position));
    all.push_back(added[row]);
    return at::stack(all, 1).to(at::kDouble).repeat_interleave(groups, 0);  // [heads, length, head_dim]
  };
  const at::Tensor k = gathered(c.k, c.added.k), v = gathered(c.v, c.added.v);
  at::Tensor scores = how.scale * k.matmul(c.q[row].to(at::kDouble).unsqueeze(2)).squeeze(2);
  if (how.soft_cap > 0) scores = how.soft_cap * (scores / how.soft_cap).tanh();
  if (how.bias.defined()) scores = scores + how.bias.narrow(1, 0, length).flip(1);
  const int64_t always = how.always.defined() ? how.always[row].item<int64_t>() : 0;
  if (how.window > 0 && length - always > how.window)
    scores.narrow(1, always, length - always - how.window).fill_(-INFINITY);
  return scores.softmax(1).unsqueeze(1).matmul(v).flatten();
}

inline void expect_attention(const Cached& c, const CachedScores& how, double tolerance) {
  std::vector<at::Tensor> expected;
  for (int64_t row = 0; row < c.q.size(0); row++) expected.push_back(expected_row(c, row, how));
  const at::Tensor found = cached_attention(c.q, c.added, c.keys(), how);
  const at::Tensor all = at::stack(expected);
  EXPECT_LT(((found.to(at::kDouble) - all).norm() / all.norm()).item<double>(), tolerance);
}

// For all ways to score, and heads that share keys and do not.
inline void expect_attention_in_all_ways(Random& random, at::ScalarType type, double tolerance) {
  const at::Tensor bias = random.normal({6, 64});
  for (const auto& [kv_heads, head_dim] : {std::pair<int64_t, int64_t>{6, 64}, {2, 16}, {3, 20}, {1, 5}}) {
    for (const CachedScores& how :
         {CachedScores{.scale = 0.2},
          {.scale = 0.5, .soft_cap = 3.0},
          {.scale = 0.3, .window = 9},
          {.scale = 0.3, .window = 9, .always = at::tensor({0, 3, 12, 22}, at::kInt)},
          {.bias = bias}})
      expect_attention(scattered(random, 6, kv_heads, head_dim, type), how, tolerance);
  }
}

}  // namespace trainer
