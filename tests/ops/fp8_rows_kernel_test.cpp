// Factors of products in FP8: loops on the CPU, and the kernels of a GPU that is emulated.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/emulated_kernels.h"
#include "ops/fp8.h"
#include "support/reference.h"

namespace trainer {
namespace {

Fp8Rows rows_on_a_gpu(const at::Tensor& x, const at::Tensor& by = {}) {
  const EmulatedGpu gpu;
  return as_on_a_gpu([&] { return fp8_rows(x, by); });
}

TEST(Fp8Rows, AreQuantisedAsWeightsAre) {
  const at::Tensor x = Random(1).normal({12, 64}) * at::logspace(-6, 6, 12).unsqueeze(1);
  const Fp8Rows rows = fp8_rows(x);
  const Fp8Tensor same = quantise_fp8("x", x);
  EXPECT_TRUE(rows.codes.flatten().equal(same.codes));
  EXPECT_TRUE(rows.scales.equal(same.scales));
}

TEST(Fp8Rows, HaveTheSameBitsOnAnEmulatedGpu) {
  Random random(2);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t cols : {16, 96, 4112, 33}) {
      // Columns of a wider matrix, as the gradients of one of several layers are.
      const at::Tensor sizes = at::logspace(-4, 4, 7).unsqueeze(1);
      const at::Tensor x = (random.normal({7, cols + 32}) * sizes).to(type).narrow(1, 16, cols);
      const at::Tensor by = random.normal({cols}).abs();
      for (const at::Tensor& factors : {at::Tensor(), by}) {
        const Fp8Rows cpu = fp8_rows(x, factors), gpu = rows_on_a_gpu(x, factors);
        EXPECT_TRUE(gpu.codes.equal(cpu.codes)) << type << " " << cols;
        EXPECT_TRUE(gpu.scales.equal(cpu.scales)) << type << " " << cols;
      }
    }
  }
}

// All bf16 numbers up to the largest code: each rounding, of normal and subnormal codes, and each tie.
TEST(Fp8Rows, EachNumberIsRoundedAsLibTorchRoundsIt) {
  at::Tensor numbers = at::arange(1 << 16, at::kInt).to(at::kShort).view(at::kBFloat16);
  numbers = numbers.masked_select(numbers.abs().le(448)).to(at::kFloat);
  const at::Tensor between = (numbers + at::roll(numbers, 1)) / 2;
  const at::Tensor x = at::cat({numbers, between, at::full({1}, 448.0f)}).unsqueeze(0);
  const Fp8Rows rows = rows_on_a_gpu(x);
  EXPECT_EQ(rows.scales.item<float>(), 1.0f);
  EXPECT_TRUE(rows.codes.equal(x.to(at::kFloat8_e4m3fn).view(at::kByte)));
}

// Gradients of a large batch, by the scales of a weight.
TEST(Fp8Rows, OfSmallNumbersAreAsExact) {
  const at::Tensor x = Random(3).normal({4, 64});
  const Fp8Rows rows = rows_on_a_gpu(x), small = rows_on_a_gpu(x * 0x1p-70, at::full({64}, 0x1p-20f));
  EXPECT_TRUE(small.codes.equal(rows.codes));
  EXPECT_TRUE((small.scales * 0x1p90).equal(rows.scales));
  EXPECT_TRUE(fp8_rows(x * 0x1p-90).codes.equal(rows.codes));
}

TEST(Fp8Rows, ZerosStayZerosAndNanIsNotHidden) {
  const Fp8Rows zeros = rows_on_a_gpu(at::zeros({2, 16}));
  EXPECT_TRUE(zeros.codes.eq(0).all().item<bool>());
  for (const float value : {NAN, INFINITY, -INFINITY}) {
    at::Tensor x = at::ones({2, 32});
    x[1][5] = value;
    const Fp8Rows rows = rows_on_a_gpu(x);
    EXPECT_TRUE(rows.codes.view(at::kFloat8_e4m3fn).to(at::kFloat)[1][5].isnan().item<bool>()) << value;
    EXPECT_TRUE(rows.codes[0].equal(fp8_rows(x).codes[0]));
  }
}

TEST(TransposedCodes, LieSideBySide) {
  const int64_t columns = 144;
  std::vector<at::Tensor> codes;
  std::vector<at::Tensor> matrices;
  for (const int64_t rows : {16, 80, 132}) {
    matrices.push_back(at::randint(0, 256, {rows, columns}, at::kInt).to(at::kByte));
    codes.push_back(matrices.back().flatten());
  }
  const at::Tensor expected = at::cat(matrices).t();
  EXPECT_TRUE(transposed_codes(codes, columns).equal(expected));
  const EmulatedGpu gpu;
  EXPECT_TRUE(as_on_a_gpu([&] { return transposed_codes(codes, columns); }).equal(expected));
}

}  // namespace
}  // namespace trainer
