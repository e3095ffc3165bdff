// FP8 against its definition and LibTorch's conversions, and products with weights in it against fp64.
#include "ops/fp8.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "support/error_message.h"
#include "support/reference.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;

at::Tensor all_codes() { return at::arange(256, at::kInt).to(at::kByte); }

// The values of the codes in one row, whose scale is this.
at::Tensor values_of(const at::Tensor& codes, float scale, at::ScalarType type) {
  const Fp8Tensor tensor{{1, codes.numel()}, kFp8Row, codes, at::full({1}, scale)};
  return widen_fp8(tensor, 0, 1, type).flatten();
}

// Also NaN is NaN, and -0 is not 0.
bool is_same(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor nan = a.isnan();
  return nan.equal(b.isnan()) && a.masked_fill(nan, 1).signbit().equal(b.masked_fill(nan, 1).signbit()) &&
         a.masked_fill(nan, 1).equal(b.masked_fill(nan, 1));
}

TEST(Fp8, EachCodeMeansWhatItMeansInLibTorch) {
  const at::Tensor codes = all_codes(), expected = codes.view(at::kFloat8_e4m3fn).to(at::kFloat);
  EXPECT_TRUE(is_same(values_of(codes, 1.0f, at::kFloat), expected));
  EXPECT_EQ(expected.masked_fill(expected.isnan(), 0).max().item<float>(), kLargestFp8);
  for (const float scale : {0.0123f, 1e-9f, 3e20f}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      EXPECT_TRUE(is_same(values_of(codes, scale, type), (expected * scale).to(type))) << scale << type;
  }
}

// The values that are to be rounded: each of e4m3, halfway to the next, and just beside that.
TEST(Fp8, CodesAreTheNearestAsLibTorchRoundsToThem) {
  const at::Tensor positive = at::arange(127, at::kInt).to(at::kByte).view(at::kFloat8_e4m3fn).to(at::kFloat);
  const at::Tensor halfway = (positive.narrow(0, 0, 126) + positive.narrow(0, 1, 126)) / 2;
  at::Tensor values = at::cat({positive, halfway, halfway * (1 - 1e-6), halfway * (1 + 1e-6)});
  values = at::cat({values, -values, at::full({1}, kLargestFp8)});
  const Fp8Tensor tensor = quantise_fp8("w", values.unsqueeze(0));
  ASSERT_EQ(tensor.scales.item<float>(), 1.0f);
  EXPECT_TRUE(tensor.codes.equal(values.to(at::kFloat8_e4m3fn).view(at::kByte)));
}

TEST(Fp8, ARowsScaleIsItsLargestMagnitudeBy448) {
  Random random(5);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    at::Tensor values = random.normal({70, 333}, type);
    values[3].zero_();
    values[4].mul_(1e-14);
    const Fp8Tensor tensor = quantise_fp8("w", values);
    const at::Tensor wide = values.to(at::kFloat);
    const at::Tensor scales = wide.abs().amax(1).clamp_min(1e-12f) / 448;
    EXPECT_TRUE(tensor.scales.equal(scales));
    EXPECT_TRUE(tensor.scales.gt(0).all().item<bool>());
    const at::Tensor codes = (wide / scales.unsqueeze(1)).to(at::kFloat8_e4m3fn).view(at::kByte);
    EXPECT_TRUE(tensor.codes.equal(codes.flatten()));
    // A value is off by half a step at most, in fp64.
    const at::Tensor exact = wide.to(at::kDouble), wide_scales = scales.to(at::kDouble).unsqueeze(1);
    const at::Tensor off = (widen_fp8(tensor, 0, 70, at::kFloat).to(at::kDouble) - exact).abs();
    EXPECT_TRUE(off.le(exact.abs() / 15.9 + wide_scales * 0x1.01p-10).all().item<bool>());
  }
}

TEST(Fp8, PiecesOfAnySizeGiveTheSameAsAllAtOnce) {
  const at::Tensor values = Random(6).normal({41, 77});
  const Fp8Tensor whole = quantise_fp8("w", values);
  for (const int64_t step : {1, 50, 77, 100, 154, 1000}) {
    Fp8Quantiser quantiser("w", {41, 77});
    for (int64_t first = 0; first < values.numel(); first += step)
      quantiser.add(values.flatten().narrow(0, first, std::min(step, values.numel() - first)));
    const Fp8Tensor pieces = quantiser.finish();
    EXPECT_TRUE(pieces.codes.equal(whole.codes)) << step;
    EXPECT_TRUE(pieces.scales.equal(whole.scales)) << step;
  }
}

TEST(Fp8, AnyRowsAreTheSameAsInTheWholeWhateverTheBlock) {
  Random random(7);
  for (const Fp8Block& block : {kFp8Row, Fp8Block{0, 0}, Fp8Block{128, 128}, Fp8Block{7, 20}}) {
    Fp8Tensor tensor = quantise_fp8("w", random.normal({150, 260}));
    const auto [down, across] = fp8_blocks(tensor.shape, block);
    tensor.block = block;
    tensor.scales = random.normal({down * across}).abs() + 0.1;
    at::Tensor expected = tensor.codes.view(at::kFloat8_e4m3fn).to(at::kFloat).view({150, 260});
    for (int64_t row = 0; row < 150; row++) {
      for (int64_t column = 0; column < 260; column++) {
        const int64_t at = row / tensor.block_rows() * across + column / tensor.block_columns();
        expected.mutable_data_ptr<float>()[row * 260 + column] *= tensor.scales.const_data_ptr<float>()[at];
      }
    }
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{0, 150}, {1, 5}, {127, 2}, {149, 1}, {3, 0}}) {
      const at::Tensor part = expected.narrow(0, first, count);
      EXPECT_TRUE(widen_fp8(tensor, first, count, at::kFloat).equal(part)) << block[0] << " " << first;
      EXPECT_TRUE(widen_fp8(tensor, first, count, at::kBFloat16).equal(part.to(at::kBFloat16)));
    }
  }
}

TEST(Fp8, AValueThatIsNotFiniteIsRefusedWithTheTensorsName) {
  for (const float value : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    at::Tensor values = at::zeros({4, 9});
    values[2][5] = value;
    const std::string message = error_message<FormatError>([&] { quantise_fp8("layer.weight", values); });
    EXPECT_TRUE(contains(message, "layer.weight: has a value that is infinite or NaN")) << message;
  }
}

}  // namespace
}  // namespace trainer
