// The kernels of attention to cached keys, run on the CPU (support/emulated_gpu.h).
#include "ops/cached_attention_cases.h"
#include "ops/emulated_kernels.h"

namespace trainer {
namespace {

class CachedAttentionKernels : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  bool bf16() const { return GetParam() == at::kBFloat16; }

  OperatorsOnAnEmulatedGpu operators_;
  Random random_{7};
};

TEST_P(CachedAttentionKernels, GiveTheValuesOfAttentionInFp64) {
  expect_attention_in_all_ways(random_, GetParam(), bf16() ? 0x1p-8 : 2e-6);
}

// Several chunks of positions, more queries than a block takes, the widest heads.
TEST_P(CachedAttentionKernels, PutChunksTogether) {
  const std::vector<int64_t> lengths{1, 128, 129, 400};
  for (const auto& [heads, kv_heads, head_dim] :
       {std::tuple<int64_t, int64_t, int64_t>{24, 2, 64}, {4, 4, 128}, {3, 1, 512}}) {
    for (const CachedScores& how :
         {CachedScores{.scale = 0.2},
          {.scale = 0.2, .window = 150},
          {.scale = 0.2, .window = 130, .always = at::tensor({0, 40, 0, 140}, at::kInt)}}) {
      const Cached c = scattered(random_, heads, kv_heads, head_dim, GetParam(), lengths);
      operators_.gpu.take_used();
      expect_attention(c, how, bf16() ? 0x1p-8 : 2e-6);
      EXPECT_TRUE(operators_.gpu.take_used().back().find(bf16() ? "kWidth=8" : "kWidth=4") !=
                  std::string::npos);
    }
  }
}

TEST_P(CachedAttentionKernels, LeaveTheNewKeyInItsPlaceAndTouchNothingElse) {
  const Cached c = scattered(random_, 12, 1, 64, GetParam());
  const at::Tensor k = c.k.clone(), v = c.v.clone();
  cached_attention(c.q, c.added, c.keys(), {});
  for (int64_t row = 0; row < c.q.size(0); row++) {
    const int64_t position = c.lengths[static_cast<size_t>(row)] - 1, slot = c.slot(row, position);
    k[slot].select(1, position).copy_(c.added.k[row]);
    v[slot].select(1, position).copy_(c.added.v[row]);
  }
  EXPECT_TRUE(c.k.equal(k));
  EXPECT_TRUE(c.v.equal(v));
}

TEST_P(CachedAttentionKernels, OfARowHaveTheSameBitsWhateverTheOthersAreAndTheRoomIs) {
  const Cached c = scattered(random_, 4, 2, 64, GetParam(), {130, 7, 300, 1});
  const at::Tensor together = cached_attention(c.q, c.added, c.keys(), {.scale = 0.1});
  const auto with_room = [](const at::Tensor& x) {
    return at::cat({x, at::full({x.size(0), x.size(1), 500, x.size(3)}, NAN, x.options())}, 2);
  };
  for (int64_t row = 0; row < c.q.size(0); row++) {
    const NewKeys added{c.added.k.narrow(0, row, 1), c.added.v.narrow(0, row, 1)};
    const CachedKeys keys{with_room(c.k), with_room(c.v), c.table.narrow(0, row, 1)};
    EXPECT_TRUE(cached_attention(c.q.narrow(0, row, 1), added, keys, {.scale = 0.1})
                    .equal(together.narrow(0, row, 1)));
  }
}

// As cross-attention has it: many rows that see one source.
TEST_P(CachedAttentionKernels, TakeRowsThatLieInOneSlot) {
  const Cached c = scattered(random_, 4, 4, 64, GetParam());
  at::Tensor table = c.table.clone();
  table.narrow(1, 2, table.size(1) - 2).copy_(table.narrow(1, 1, 1).expand({-1, table.size(1) - 2}));
  const at::Tensor by_position = cached_attention(c.q, {}, {c.k, c.v, table}, {});
  const at::Tensor own = table.narrow(1, 0, 2).contiguous();
  EXPECT_TRUE(by_position.equal(cached_attention(c.q, {}, {c.k, c.v, own, /*in_own_slot=*/true}, {})));
}

INSTANTIATE_TEST_SUITE_P(Types, CachedAttentionKernels, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace trainer
