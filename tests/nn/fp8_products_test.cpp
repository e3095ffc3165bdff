// Products in FP8, against fp64.
#include "weights/fp8_products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/reference.h"
#include "weights/fp8_weight.h"

namespace trainer {
namespace {

at::Tensor fp8_values(const Fp8Rows& rows) {
  return rows.codes.to(at::kDouble) * rows.scales.to(at::kDouble);
}

struct Fp8Case {
  at::Tensor x, gradient;
  Fp8Tensor w;
};

Fp8Case fp8_case(at::ScalarType type) {
  Random random(5);
  Fp8Case c{random.normal({24, 96}, type), random.normal({24, 80}, type), {}};
  // Rows of different sizes, as the channels of a real weight are.
  const at::Tensor sizes = at::logspace(-3, 1, 80).unsqueeze(1);
  c.w = quantise_fp8("w", random.normal({80, 96}) * sizes);
  return c;
}

at::Tensor exact_fp8(const Fp8Tensor& w) { return widen_fp8(w, 0, w.rows(), at::kFloat).to(at::kDouble); }

TEST(Fp8Products, RowsAreQuantisedAsWeightsAre) {
  const at::Tensor x = Random(1).normal({12, 64}) * at::logspace(-6, 6, 12).unsqueeze(1);
  const Fp8Rows rows = fp8_rows(x);
  const Fp8Tensor same = quantise_fp8("x", x);
  EXPECT_TRUE(rows.codes.view(at::kByte).flatten().equal(same.codes));
  EXPECT_TRUE(rows.scales.flatten().equal(same.scales));
  EXPECT_EQ(rows.codes.to(at::kFloat).abs().max().item<float>(), kLargestFp8);
}

TEST(Fp8Products, ARowOfZerosStaysZero) {
  const Fp8Rows rows = fp8_rows(at::zeros({2, 16}));
  EXPECT_TRUE(fp8_values(rows).eq(0).all().item<bool>());
  const Fp8Case c = fp8_case(at::kFloat);
  EXPECT_TRUE(fp8_times_transposed(at::zeros({3, 96}), c.w).eq(0).all().item<bool>());
}

// Of the quantised factors the product is exact but for its sum in fp32 and its type.
TEST(Fp8Products, AreExactForWhatTheCodesStandFor) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Fp8Case c = fp8_case(type);
    const double bound = type == at::kFloat ? 1e-6 : 4e-3;
    EXPECT_LE(
        relative_difference(fp8_times_transposed(c.x, c.w), fp8_values(fp8_rows(c.x)).mm(exact_fp8(c.w).t())),
        bound);
    const at::Tensor scales = c.w.scales.view({1, -1});
    const at::Tensor codes = exact_fp8(c.w) / scales.t().to(at::kDouble);
    const at::Tensor folded = fp8_values(fp8_rows(c.gradient.to(at::kFloat) * scales));
    EXPECT_LE(relative_difference(fp8_times(c.gradient, c.w), folded.mm(codes)), bound);
  }
}

// Three bits of fraction: a value is off by a part in 16 at most, and by 2.7 % on average; sums average it
// out.
TEST(Fp8Products, AreNearTheProductsOfWhatWasNotQuantised) {
  const Fp8Case c = fp8_case(at::kFloat);
  const at::Tensor y = c.x.to(at::kDouble).mm(exact_fp8(c.w).t()),
                   dx = c.gradient.to(at::kDouble).mm(exact_fp8(c.w));
  EXPECT_LE(relative_difference(fp8_times_transposed(c.x, c.w), y), 0.04);
  EXPECT_LE(relative_difference(fp8_times(c.gradient, c.w), dx), 0.04);
}

TEST(Fp8Products, AreNotForACpu) {
  const auto weight = std::make_shared<Fp8Weight>(fp8_case(at::kFloat).w, at::kFloat);
  EXPECT_EQ(multiplied_in_fp8(at::zeros({2, 96}), Weight(weight)), nullptr)
      << "it keeps the dequantised numbers";
}

}  // namespace
}  // namespace trainer
