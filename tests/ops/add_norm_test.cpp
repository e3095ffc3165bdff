// The residual sum with its norm in one pass on the CPU. A recomputed block computes the sum and the norm
// apart, and its gradients must have the same bits.
#include "ops/add_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/dropout.h"
#include "ops/rms_norm.h"
#include "support/reference.h"

namespace trainer {
namespace {

// Elements' type, whether the norm multiplies by 1 + weight, and dropout's probability.
class AddNormOnTheCpu : public ::testing::TestWithParam<std::tuple<at::ScalarType, bool, double>> {
 protected:
  void SetUp() override { std::tie(type_, plus_one_, p_) = GetParam(); }
  at::Tensor normal(at::IntArrayRef shape) { return random_.normal(shape, type_); }
  std::optional<at::Tensor> keys(int64_t rows) const {
    return p_ > 0 ? std::optional(at::arange(rows).mul_(0x123456789)) : std::nullopt;
  }
  at::Tensor dropped(const at::Tensor& x, const std::optional<at::Tensor>& row_keys) const {
    return row_keys ? dropout_apply(x, *row_keys, kKey, p_) : x;
  }

  static constexpr uint64_t kKey = 0x1edcba9876543210;
  static constexpr double kEpsilon = 1e-5;
  at::ScalarType type_ = at::kFloat;
  bool plus_one_ = false;
  double p_ = 0.0;
  Random random_{31};
};

TEST_P(AddNormOnTheCpu, HasTheBitsOfTheOperatorsThatItReplaces) {
  // Columns that fill vectors, and others, which end in a loop over single numbers.
  for (const int64_t columns : {1, 7, 13, 31, 64, 267}) {
    const at::Tensor x = normal({9, columns}), y = normal({9, columns}), w = normal({columns}),
                     g = normal({9, columns}), g_h = normal({9, columns});
    const auto row_keys = keys(9);
    const PartDropout dropout{row_keys, static_cast<int64_t>(kKey), p_};
    const at::Tensor sum = dropped(y, row_keys) + x;
    const auto [n, rstd] = rms_norm(sum, w, kEpsilon, plus_one_);
    const auto [h2, n2, rstd2] = add_norm(x, y, w, dropout, kEpsilon, plus_one_);
    EXPECT_TRUE(h2.equal(sum)) << columns;
    EXPECT_TRUE(n2.equal(n)) << columns;
    EXPECT_TRUE(rstd2.equal(rstd)) << columns;
    const at::Tensor of_norm = std::get<0>(rms_norm_backward(g, sum, w, rstd, true, false, plus_one_));
    for (const bool other : {false, true}) {
      const at::Tensor gx = other ? of_norm + g_h : of_norm;
      const auto [gx2, gy2] =
          add_norm_backward(g, other ? std::optional(g_h) : std::nullopt, sum, w, rstd, dropout, plus_one_);
      EXPECT_TRUE(gx2.equal(gx)) << columns;
      ASSERT_EQ(gy2.defined(), p_ > 0);
      if (p_ > 0) {
        EXPECT_TRUE(gy2.equal(dropped(gx, row_keys))) << columns;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AddNormOnTheCpu,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16), ::testing::Bool(),
                                            ::testing::Values(0.0, 0.2)));

}  // namespace
}  // namespace trainer
