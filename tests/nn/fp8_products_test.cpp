// Products in FP8, against fp64.
#include "weights/fp8_products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/gpu.h"
#include "support/reference.h"
#include "weights/fp8_weight.h"

namespace trainer {
namespace {

at::Tensor fp8_values(const Fp8Rows& rows) {
  return rows.codes.view(at::kFloat8_e4m3fn).to(at::kDouble) * rows.scales.to(at::kDouble).unsqueeze(1);
}

struct Fp8Case {
  at::Tensor x, gradient;
  Fp8Tensor w, other;
};

Fp8Case fp8_case() {
  Random random(5);
  Fp8Case c{random.normal({24, 96}, at::kBFloat16), random.normal({24, 128}, at::kBFloat16), {}, {}};
  // Rows of different sizes, as the channels of a real weight are.
  c.w = quantise_fp8("w", random.normal({80, 96}) * at::logspace(-3, 1, 80).unsqueeze(1));
  c.other = quantise_fp8("other", random.normal({48, 96}) * at::logspace(-2, 0, 48).unsqueeze(1));
  return c;
}

at::Tensor exact_fp8(const Fp8Tensor& w) { return widen_fp8(w, 0, w.rows(), at::kFloat).to(at::kDouble); }

// Of the quantised factors the product is exact but for its sum in fp32 and its type.
TEST(Fp8Products, AreExactForWhatTheCodesStandFor) {
  const Fp8Case c = fp8_case();
  EXPECT_LE(relative_difference(fp8_times_transposed(fp8_rows(c.x), c.w),
                                fp8_values(fp8_rows(c.x)).mm(exact_fp8(c.w).t())),
            4e-3);
  const at::Tensor scales = at::cat({c.w.scales, c.other.scales});
  const at::Tensor codes =
      at::cat({exact_fp8(c.w), exact_fp8(c.other)}) / scales.to(at::kDouble).unsqueeze(1);
  EXPECT_LE(relative_difference(fp8_times(c.gradient, {&c.w, &c.other}),
                                fp8_values(fp8_rows(c.gradient, scales)).mm(codes)),
            4e-3);
}

// Three bits of fraction: a value is off by a part in 16 at most, and by 2.7 % on average; sums average it
// out.
TEST(Fp8Products, AreNearTheProductsOfWhatWasNotQuantised) {
  const Fp8Case c = fp8_case();
  const at::Tensor y = c.x.to(at::kDouble).mm(exact_fp8(c.w).t()),
                   dx = c.gradient.to(at::kDouble).mm(at::cat({exact_fp8(c.w), exact_fp8(c.other)}));
  EXPECT_LE(relative_difference(fp8_times_transposed(fp8_rows(c.x), c.w), y), 0.04);
  EXPECT_LE(relative_difference(fp8_times(c.gradient, {&c.w, &c.other}), dx), 0.04);
}

TEST(Fp8Products, OneScaleForAllRowsIsThatOfEach) {
  Fp8Case c = fp8_case();
  c.w.block = {0, 0};
  c.w.scales = c.w.scales.narrow(0, 40, 1).clone();
  EXPECT_LE(relative_difference(fp8_times_transposed(fp8_rows(c.x), c.w),
                                fp8_values(fp8_rows(c.x)).mm(exact_fp8(c.w).t())),
            4e-3);
}

TEST(Fp8Products, OnAGpuAreTheCpus) {
  const std::string why = test::why_no_gpu(kernel_file("rms_norm"), "Element=float kWidth=1");
  if (!why.empty()) GTEST_SKIP() << why;
  if (!multiplies_fp8(c10::Device(c10::kCUDA, 0))) GTEST_SKIP() << "a card without products in FP8";
  const Fp8Case c = fp8_case();
  const auto there = [](Fp8Tensor w) {
    w.codes = test::on_gpu(w.codes);
    w.scales = test::on_gpu(w.scales);
    return w;
  };
  const Fp8Tensor w = there(c.w), other = there(c.other);
  EXPECT_LE(relative_difference(fp8_times_transposed(fp8_rows(test::on_gpu(c.x)), w).cpu(),
                                fp8_times_transposed(fp8_rows(c.x), c.w)),
            4e-3);
  EXPECT_LE(relative_difference(fp8_times(test::on_gpu(c.gradient), {&w, &other}).cpu(),
                                fp8_times(c.gradient, {&c.w, &c.other})),
            4e-3);
}

TEST(Fp8Products, AreOfWeightsInBf16RunsWithAScaleARow) {
  const Fp8Case c = fp8_case();
  const Weight weight(std::make_shared<Fp8Weight>(c.w, at::kBFloat16));
  EXPECT_EQ(multiplied_in_fp8(c.x, weight), nullptr) << "a CPU keeps the dequantised numbers";
  const Fp8ProductsInTests here;
  EXPECT_NE(multiplied_in_fp8(c.x, weight), nullptr);
  EXPECT_EQ(multiplied_in_fp8(c.x.to(at::kFloat), weight), nullptr);
  EXPECT_EQ(multiplied_in_fp8(c.x, Weight(at::zeros({80, 96}, at::kBFloat16))), nullptr);
  Fp8Tensor blocks = c.w;
  blocks.block = {80, 48};
  blocks.scales = at::ones({2});
  const Weight by_blocks(std::make_shared<Fp8Weight>(blocks, at::kBFloat16));
  EXPECT_EQ(multiplied_in_fp8(c.x, by_blocks), nullptr);
}

}  // namespace
}  // namespace trainer
