// Attention to cached keys: the values of LibTorch's attention to the same keys laid out row by row.
#include "ops/cached_attention_cases.h"

namespace trainer {
namespace {

TEST(CachedAttention, HasTheValuesOfAttentionInFp64) {
  Random random{3};
  expect_attention_in_all_ways(random, at::kFloat, 2e-6);
  expect_attention_in_all_ways(random, at::kBFloat16, 0x1p-8);
}

TEST(CachedAttention, LeavesTheNewKeyInItsPlace) {
  Random random{4};
  const Cached c = scattered(random, 4, 2, 16, at::kFloat);
  cached_attention(c.q, c.added, c.keys(), {});
  for (int64_t row = 0; row < c.q.size(0); row++) {
    const int64_t position = c.lengths[static_cast<size_t>(row)] - 1, slot = c.slot(row, position);
    EXPECT_TRUE(c.k[slot].select(1, position).equal(c.added.k[row]));
    EXPECT_TRUE(c.v[slot].select(1, position).equal(c.added.v[row]));
  }
}

TEST(CachedAttention, OfARowHasTheSameBitsWhateverTheOthersAre) {
  Random random{5};
  const Cached c = scattered(random, 4, 2, 64, at::kBFloat16);
  const at::Tensor together = cached_attention(c.q, c.added, c.keys(), {.scale = 0.1});
  for (int64_t row = 0; row < c.q.size(0); row++) {
    const NewKeys added{c.added.k.narrow(0, row, 1), c.added.v.narrow(0, row, 1)};
    const CachedKeys keys{c.k, c.v, c.table.narrow(0, row, 1)};
    EXPECT_TRUE(cached_attention(c.q.narrow(0, row, 1), added, keys, {.scale = 0.1})
                    .equal(together.narrow(0, row, 1)));
  }
}

// Cross-attention: rows that share a source, and add nothing to it.
TEST(CachedAttention, TakesRowsThatLieInOneSlot) {
  Random random{6};
  const at::Tensor q = random.normal({3, 2, 16}), k = random.normal({2, 2, 10, 16}),
                   v = random.normal({2, 2, 10, 16});
  const at::Tensor table = at::tensor({6, 1, 6, 1, 10, 0}, at::kInt).view({3, 2});
  const at::Tensor found = cached_attention(q, {}, {k, v, table, /*in_own_slot=*/true}, {});
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
