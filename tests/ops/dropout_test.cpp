// Dropout: its expectation, independence of the split, and the same mask on every device.
#include "ops/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "support/reference_ops.h"

namespace trainer {
namespace {

at::Tensor keys_of(std::vector<int64_t> samples, int64_t seq) {
  for (int64_t& key : samples) key = static_cast<int64_t>(derive(1, static_cast<uint64_t>(key)));
  return row_keys(at::tensor(samples), seq);
}

TEST(Dropout, KeepsExpectationAndVariance) {
  const at::Tensor x = at::ones({64, 32, 256});
  std::vector<int64_t> slots(64);
  for (size_t i = 0; i < 64; i++) slots[i] = static_cast<int64_t>(i);
  const at::Tensor y = dropout(x, keys_of(slots, 32), 3, 0.1);
  const double kept = y.ne(0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(kept, 0.9, 0.002);  // 524,288 draws: standard error 0.0004
  EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.002);
  EXPECT_NEAR(y.var().item<double>(), 0.1 / 0.9, 0.003);
}

TEST(Dropout, MasksOfRowsColumnsAndKeysAreUncorrelated) {
  const at::Tensor x = at::ones({1, 512, 512});
  const auto mask = [&](uint64_t key) {
    return dropout(x, keys_of({7}, 512), key, 0.5).ne(0).to(at::kDouble).squeeze(0) - 0.5;
  };
  const at::Tensor a = mask(1), b = mask(2);
  const auto correlation = [](const at::Tensor& p, const at::Tensor& q) {
    return (p * q).mean().item<double>() * 4;
  };
  EXPECT_NEAR(correlation(a, b), 0, 0.01);  // 262,144 draws: standard error 0.002
  EXPECT_NEAR(correlation(a.slice(0, 1), a.slice(0, 0, 511)), 0, 0.01);
  EXPECT_NEAR(correlation(a.slice(1, 1), a.slice(1, 0, 511)), 0, 0.01);
}

TEST(Dropout, ASamplesMaskDoesNotDependOnItsCompanyOrPadding) {
  const at::Tensor x = at::ones({3, 10, 48});
  const at::Tensor together = dropout(x, keys_of({4, 9, 2}, 10), 5, 0.3);
  const at::Tensor alone = dropout(x.slice(0, 0, 1).slice(1, 0, 6), keys_of({9}, 6), 5, 0.3);
  EXPECT_TRUE(together[1].slice(0, 0, 6).equal(alone[0]));
}

TEST(Dropout, BackwardUsesTheMaskOfForward) {
  at::Tensor x = at::ones({2, 5, 33}).set_requires_grad(true);
  const at::Tensor y = dropout(x, keys_of({0, 1}, 5), 8, 0.4);
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(y.detach()));
}

TEST(Dropout, TogetherWithAGradientHasTheBitsOfBothOneByOne) {
  at::manual_seed(1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({60, 70}).to(type), g = at::randn({60, 70}).to(type),
                     sum = at::randn({60, 70}).to(type), keys = keys_of({3, 8}, 30);
    at::Tensor both = sum.clone();
    const at::Tensor dropped = dropout_with_gradient(x, g, both, keys, 7, 0.2);
    EXPECT_TRUE(at::equal(dropped, dropout_apply(x, keys, 7, 0.2)));
    EXPECT_TRUE(at::equal(both, sum + dropout_apply(g, keys, 7, 0.2)));
  }
}

TEST(Dropout, WithLibTorchsOperatorsTheMaskIsThatOfTheKernel) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({4, 17, 65}).to(type);
    const at::Tensor keys = keys_of({3, 1, 250, 99}, 17);
    const uint64_t key = 0xfedcba9876543210ull;
    EXPECT_TRUE(reference::dropout(x, keys, static_cast<int64_t>(key), 0.15)
                    .equal(dropout_apply(x, keys, key, 0.15)));
  }
}

}  // namespace
}  // namespace trainer
