// The gradient norm on the CPU is that of fp64.
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "optim/gradient_norm.h"

namespace trainer {
namespace {

double norm_of(const at::Tensor& gradient) {
  return norms_of_pieces(gradient).to(at::kDouble).norm().item<double>();
}

// Sums in fp32 are 3e-5 too small for a gradient of this size.
TEST(NormsOfPieces, AreThoseOfFp64) {
  at::manual_seed(1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor gradient = at::randn({1000, 3001}).abs_().to(type);
    const double expected = gradient.to(at::kDouble).norm().item<double>();
    EXPECT_NEAR(norm_of(gradient) / expected, 1.0, 1e-7);
    EXPECT_NEAR(norm_of(gradient.t()) / expected, 1.0, 1e-7) << "not contiguous";
  }
  EXPECT_EQ(norms_of_pieces(at::ones({100'000})).numel(), 4);
}

TEST(NormsOfPieces, OfVeryLargeAndVerySmallElementsAreNotLost) {
  for (const double size : {1e25, 1e-25}) {
    const at::Tensor gradient = at::full({50'000}, size);
    EXPECT_NEAR(norm_of(gradient) / (size * std::sqrt(50'000.0)), 1.0, 1e-6);
  }
}

TEST(NormsOfPieces, AreNotFiniteWhereAGradientIsNot) {
  at::Tensor gradient = at::ones({40'000});
  gradient[39'999] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(norm_of(gradient)));
}

}  // namespace
}  // namespace trainer
