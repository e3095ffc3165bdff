// Attention to cached keys: the values of LibTorch's attention to the same keys laid out row by row.
#include "ops/cached_attention.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/reference.h"

namespace trainer {
namespace {

struct Cached {
  at::Tensor q, k, v, slots;
  std::vector<int64_t> lengths;
  NewKeys added;
};

// Rows of different lengths, each position in another slot.
Cached scattered(Random& random, int64_t heads, int64_t kv_heads, int64_t head_dim, at::ScalarType type) {
  const std::vector<int64_t> lengths{1, 7, 40, 23};
  const int64_t rows = std::ssize(lengths), slots = 6, positions = 48;
  const auto normal = [&](at::IntArrayRef shape) { return random.normal(shape).to(type); };
  Cached c{normal({rows, heads, head_dim}),
           normal({slots, kv_heads, positions, head_dim}),
           normal({slots, kv_heads, positions, head_dim}),
           at::empty({rows, positions}, at::kInt),
           lengths,
           {normal({rows, kv_heads, head_dim}), normal({rows, kv_heads, head_dim})}};
  // No two rows end in the same place.
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t position = 0; position < positions; position++)
      c.slots.index_put_({at::tensor(row), at::tensor(position)},
                         at::tensor((row * 5 + position * 3) % slots, at::kInt));
  }
  return c;
}

// One row in fp64, from keys that are gathered position by position.
at::Tensor expected_row(const Cached& c, int64_t row, const CachedScores& how) {
  const int64_t length = c.lengths[static_cast<size_t>(row)], groups = c.q.size(1) / c.k.size(1);
  const auto gathered = [&](const at::Tensor& cache, const at::Tensor& added) {
    std::vector<at::Tensor> all;
    for (int64_t position = 0; position + 1 < length; position++)
      all.push_back(cache[c.slots[row][position].item<int64_t>()].select(1, position));
    all.push_back(added[row]);
    return at::stack(all, 1).to(at::kDouble).repeat_interleave(groups, 0);  // [heads, length, head_dim]
  };
  const at::Tensor k = gathered(c.k, c.added.k), v = gathered(c.v, c.added.v);
  at::Tensor scores = how.scale * k.matmul(c.q[row].to(at::kDouble).unsqueeze(2)).squeeze(2);
  if (how.soft_cap > 0) scores = how.soft_cap * (scores / how.soft_cap).tanh();
  if (how.bias.defined()) scores = scores + how.bias.narrow(1, 0, length).flip(1);
  const int64_t always = how.always.empty() ? 0 : how.always[static_cast<size_t>(row)];
  if (how.window > 0 && length - always > how.window)
    scores.narrow(1, always, length - always - how.window).fill_(-INFINITY);
  return scores.softmax(1).unsqueeze(1).matmul(v).flatten();
}

void expect_attention(const Cached& c, const CachedScores& how, double tolerance) {
  std::vector<at::Tensor> expected;
  for (int64_t row = 0; row < c.q.size(0); row++) expected.push_back(expected_row(c, row, how));
  const at::Tensor found = cached_attention(c.q, c.added, {c.k, c.v, c.slots, c.lengths}, how);
  const at::Tensor all = at::stack(expected);
  EXPECT_LT(((found.to(at::kDouble) - all).norm() / all.norm()).item<double>(), tolerance);
}

TEST(CachedAttention, HasTheValuesOfAttentionInFp64) {
  Random random{3};
  const at::Tensor bias = random.normal({6, 64});
  for (const auto& [kv_heads, head_dim] : {std::pair<int64_t, int64_t>{6, 64}, {2, 16}, {3, 20}, {1, 5}}) {
    for (const CachedScores& how : {CachedScores{.scale = 0.2},
                                    {.scale = 0.5, .soft_cap = 3.0},
                                    {.scale = 0.3, .window = 9},
                                    {.scale = 0.3, .window = 9, .always = {0, 3, 12, 22}},
                                    {.bias = bias}}) {
      expect_attention(scattered(random, 6, kv_heads, head_dim, at::kFloat), how, 2e-6);
      expect_attention(scattered(random, 6, kv_heads, head_dim, at::kBFloat16), how, 0x1p-8);
    }
  }
}

TEST(CachedAttention, LeavesTheNewKeyInItsPlace) {
  Random random{4};
  const Cached c = scattered(random, 4, 2, 16, at::kFloat);
  cached_attention(c.q, c.added, {c.k, c.v, c.slots, c.lengths}, {});
  for (int64_t row = 0; row < c.q.size(0); row++) {
    const int64_t position = c.lengths[static_cast<size_t>(row)] - 1,
                  slot = c.slots[row][position].item<int64_t>();
    EXPECT_TRUE(c.k[slot].select(1, position).equal(c.added.k[row]));
    EXPECT_TRUE(c.v[slot].select(1, position).equal(c.added.v[row]));
  }
}

TEST(CachedAttention, OfARowHasTheSameBitsWhateverTheOthersAre) {
  Random random{5};
  const Cached c = scattered(random, 4, 2, 64, at::kBFloat16);
  const at::Tensor together = cached_attention(c.q, c.added, {c.k, c.v, c.slots, c.lengths}, {.scale = 0.1});
  for (int64_t row = 0; row < c.q.size(0); row++) {
    const NewKeys added{c.added.k.narrow(0, row, 1), c.added.v.narrow(0, row, 1)};
    const CachedKeys keys{c.k, c.v, c.slots.narrow(0, row, 1), {c.lengths[static_cast<size_t>(row)]}};
    EXPECT_TRUE(cached_attention(c.q.narrow(0, row, 1), added, keys, {.scale = 0.1})
                    .equal(together.narrow(0, row, 1)));
  }
}

// Cross-attention: rows that share a source, and add nothing to it.
TEST(CachedAttention, TakesRowsThatLieInOneSlot) {
  Random random{6};
  const at::Tensor q = random.normal({3, 2, 16}), k = random.normal({2, 2, 10, 16}),
                   v = random.normal({2, 2, 10, 16});
  const at::Tensor found =
      cached_attention(q, {}, {k, v, at::tensor({1, 1, 0}, at::kInt).unsqueeze(1), {6, 6, 10}}, {});
  const int64_t slots[] = {1, 1, 0}, lengths[] = {6, 6, 10};
  for (int64_t row = 0; row < 3; row++) {
    const at::Tensor own_k = k[slots[row]].narrow(1, 0, lengths[row]),
                     own_v = v[slots[row]].narrow(1, 0, lengths[row]);
    const at::Tensor weights = own_k.matmul(q[row].unsqueeze(2)).squeeze(2).softmax(1);
    EXPECT_TRUE(at::allclose(found[row], weights.unsqueeze(1).matmul(own_v).flatten(), 1e-5, 1e-6));
  }
}

}  // namespace
}  // namespace trainer
