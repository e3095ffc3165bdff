// Masks by distance, compared with their definition for each query and key.
#include "nn/seen_keys.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trainer {
namespace {

const at::TensorOptions kFp32 = at::dtype(at::kFloat);

bool is_seen(const Sight& sight, int64_t query, int64_t key) {
  const int64_t behind = key - query;
  return (sight.before < 0 || -behind <= sight.before) && (sight.after < 0 || behind <= sight.after);
}

// What a mask says of one query and key; undefined: everything is seen.
bool says(const at::Tensor& mask, int64_t batch, int64_t positions, int64_t keys, int64_t row, int64_t query,
          int64_t key) {
  return !mask.defined() || mask.expand({batch, 1, positions, keys})[row][0][query][key].item<float>() == 0;
}

TEST(SeenKeys, AreThoseNearEnoughThatAreNoPadding) {
  constexpr int64_t positions = 9;
  const std::vector<int64_t> lengths{9, 4, 1};
  for (const Sight& sight : {Sight{}, Sight{-1, 0}, Sight{2, 3}, Sight{3, 0}, Sight{0, 5}, Sight{20, 20}}) {
    const at::Tensor padded = seen_mask(sight, positions, at::tensor(lengths), kFp32),
                     plain = seen_mask(sight, positions, {}, kFp32);
    for (int64_t query = 0; query < positions; query++) {
      for (int64_t key = 0; key < positions; key++) {
        const bool near = is_seen(sight, query, key);
        EXPECT_EQ(says(plain, 1, positions, positions, 0, query, key), near) << query << " " << key;
        for (int64_t row = 0; row < 3; row++) {
          const int64_t length = lengths[static_cast<size_t>(row)];
          if (query >= length) continue;
          EXPECT_EQ(says(padded, 3, positions, positions, row, query, key), near && key < length);
        }
      }
    }
    // Every row of scores has a number, so that no weight is NaN.
    if (padded.defined()) {
      EXPECT_TRUE(padded.expand({3, 1, positions, positions}).amax(-1).eq(0).all().item<bool>());
    }
  }
  EXPECT_FALSE(seen_mask({}, positions, {}, kFp32).defined());
  EXPECT_FALSE(seen_mask({20, 20}, positions, {}, kFp32).defined());
}

TEST(SeenKeys, OfASourceComeAfterTheOwn) {
  constexpr int64_t positions = 5, sources = 6;
  const std::vector<int64_t> lengths{6, 2};
  for (const Sight& sight : {Sight{-1, 0}, Sight{1, 0}}) {
    const at::Tensor mask = merged_mask(sight, positions, at::tensor(lengths), sources, kFp32);
    ASSERT_EQ(mask.sizes(), (std::vector<int64_t>{2, 1, positions, positions + sources}));
    for (int64_t row = 0; row < 2; row++) {
      for (int64_t query = 0; query < positions; query++) {
        for (int64_t key = 0; key < positions + sources; key++) {
          const bool expected = key < positions ? is_seen(sight, query, key)
                                                : key - positions < lengths[static_cast<size_t>(row)];
          EXPECT_EQ(mask[row][0][query][key].item<float>() == 0, expected);
        }
      }
    }
  }
  EXPECT_FALSE(merged_mask({-1, 0}, 1, {}, sources, kFp32).defined());
}

}  // namespace
}  // namespace trainer
