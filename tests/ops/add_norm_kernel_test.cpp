// The residual sum with its norm in one kernel, run on the CPU (support/emulated_gpu.h).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/add_norm.h"
#include "ops/dropout.h"
#include "ops/emulated_kernels.h"
#include "ops/kernels.h"
#include "ops/rms_norm.h"
#include "support/reference.h"

namespace trainer {
namespace {

class AddNormKernel : public ::testing::TestWithParam<std::tuple<at::ScalarType, double, bool>> {
 protected:
  at::ScalarType type() const { return std::get<0>(GetParam()); }
  double p() const { return std::get<1>(GetParam()); }
  bool plus_one() const { return std::get<2>(GetParam()); }
  bool bf16() const { return type() == at::kBFloat16; }
  at::Tensor normal(at::IntArrayRef shape) { return random_.normal(shape, type()); }
  std::optional<at::Tensor> keys(int64_t rows) const {
    return p() > 0 ? std::optional(at::arange(rows).mul_(0x123456789)) : std::nullopt;
  }

  static constexpr int64_t kKey = 0x1edcba9876543210;
  static constexpr double kEpsilon = 1e-5;
  Random random_{29};
  EmulatedGpu gpu_;
};

TEST_P(AddNormKernel, IsTheCpus) {
  const double bound = bf16() ? 3e-4 : 5e-7;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{3, 7}, {1, 33}, {40, 129}, {11, 64}, {5, 4104}}) {
    const at::Tensor x = normal(shape), y = normal(shape), w = normal({shape[1]}), g = normal(shape),
                     g_h = normal(shape);
    const auto row_keys = keys(shape[0]);
    const auto [h, n, rstd] = add_norm(x, y, w, {row_keys, kKey, p()}, kEpsilon, plus_one());
    const auto [h2, n2, rstd2] = as_on_a_gpu([&] {
      return add_norm(x, y, w, {row_keys, kKey, p()}, kEpsilon, plus_one());
    });
    EXPECT_EQ(gpu_.was_wide(), shape[1] % 8 == 0);
    EXPECT_TRUE(h2.equal(h)) << shape;
    EXPECT_LE(relative_difference(n2, n), bound) << shape;
    EXPECT_LE(relative_difference(rstd2, rstd), 5e-7) << shape;
    for (const std::optional<at::Tensor>& other : {std::optional(g_h), std::optional<at::Tensor>()}) {
      const auto [gx, gy] = add_norm_backward(g, other, h, w, rstd, {row_keys, kKey, p()}, plus_one());
      const auto [gx2, gy2] = as_on_a_gpu([&] {
        return add_norm_backward(g, other, h, w, rstd, {row_keys, kKey, p()}, plus_one());
      });
      EXPECT_LE(relative_difference(gx2, gx), bound) << shape;
      EXPECT_EQ(gy2.defined(), p() > 0);
      if (p() > 0) {
        EXPECT_LE(relative_difference(gy2, gy), bound) << shape;
      }
    }
  }
}

// A recomputed block computes the sum and the norm apart.
TEST_P(AddNormKernel, HasTheBitsOfTheKernelsThatItReplaces) {
  const at::Tensor x = normal({9, 264}), y = normal({9, 264}), w = normal({264}), g = normal({9, 264}),
                   g_h = normal({9, 264});
  const auto row_keys = keys(9);
  const at::Tensor part =
      row_keys ? as_on_a_gpu([&] { return dropout_apply(y, *row_keys, static_cast<uint64_t>(kKey), p()); })
               : y;
  const at::Tensor sum = x + part;
  const auto [n, rstd] = as_on_a_gpu([&] { return rms_norm(sum, w, kEpsilon, plus_one()); });
  const auto [h2, n2, rstd2] = as_on_a_gpu([&] {
    return add_norm(x, y, w, {row_keys, kKey, p()}, kEpsilon, plus_one());
  });
  EXPECT_TRUE(h2.equal(sum));
  EXPECT_TRUE(n2.equal(n));
  EXPECT_TRUE(rstd2.equal(rstd));
  const at::Tensor gx =
      g_h +
      std::get<0>(as_on_a_gpu([&] { return rms_norm_backward(g, sum, w, rstd, true, false, plus_one()); }));
  const auto [gx2, gy2] = as_on_a_gpu([&] {
    return add_norm_backward(g, g_h, sum, w, rstd, {row_keys, kKey, p()}, plus_one());
  });
  EXPECT_TRUE(gx2.equal(gx));
  if (row_keys) {
    EXPECT_TRUE(gy2.equal(
        as_on_a_gpu([&] { return dropout_apply(gx, *row_keys, static_cast<uint64_t>(kKey), p()); })));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AddNormKernel,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Values(0.0, 0.2), ::testing::Bool()));

}  // namespace
}  // namespace trainer
