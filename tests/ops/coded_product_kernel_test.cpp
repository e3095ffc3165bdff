// Products with weights in NF4 and FP8 as they are stored, by the kernels of a GPU that is emulated.
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "device/nvrtc.h"
#include "ops/coded_product.h"
#include "ops/emulated_kernels.h"
#include "support/planned_bytes.h"
#include "support/reference.h"

namespace trainer {
namespace {

// A weight and what it refers to.
struct StoredCodes {
  std::string name;
  std::optional<Nf4Tensor> nf4 = std::nullopt;
  std::optional<Fp8Tensor> fp8 = std::nullopt;

  CodedWeight weight(const at::Tensor& bias = {}) const {
    return {nf4 ? &*nf4 : nullptr, fp8 ? &*fp8 : nullptr, bias};
  }
  // What is multiplied: rounded to the type of x.
  at::Tensor values(at::ScalarType type) const {
    const at::Tensor widened = nf4 ? dequantise_nf4(*nf4, 0, nf4->numel(), type).view(nf4->shape)
                                   : widen_fp8_cpu(*fp8, 0, fp8->rows(), type);
    return widened.to(at::kDouble);
  }
};

Fp8Tensor fp8_in_blocks(Random& random, int64_t outputs, int64_t inputs, const Fp8Block& block) {
  Fp8Tensor tensor = quantise_fp8("w", random.normal({outputs, inputs}));
  const auto [down, across] = fp8_blocks(tensor.shape, block);
  tensor.block = block;
  tensor.scales = random.normal({down * across}).abs() + 0.1;
  return tensor;
}

class CodedProducts : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType type() const { return GetParam(); }
  // fp32: the last bits of a sum; bf16: a few elements on the other side of a rounding.
  double bound() const { return type() == at::kFloat ? 1e-6 : 5e-4; }

  // In each way of having scales.
  std::vector<StoredCodes> all_formats(int64_t outputs, int64_t inputs) {
    const at::Tensor values = random_.normal({outputs, inputs}) * 0.1;
    return {{"nf4", quantise_nf4("w", values, false)},
            {"nf4 twice", quantise_nf4("w", values, true)},
            {"fp8 by row", {}, quantise_fp8("w", values)},
            {"fp8 as a whole", {}, fp8_in_blocks(random_, outputs, inputs, {0, 0})},
            {"fp8 in blocks", {}, fp8_in_blocks(random_, outputs, inputs, {8, 32})},
            {"fp8 in odd blocks", {}, fp8_in_blocks(random_, outputs, inputs, {3, 7})}};
  }

  at::Tensor multiplied(const at::Tensor& x, const CodedWeight& weight) {
    return as_on_a_gpu([&] { return coded_products(x, {weight})[0]; });
  }

  at::NoGradGuard no_grad_;
  Random random_{23};
  EmulatedGpu gpu_;
};

TEST_P(CodedProducts, AreThoseOfTheWidenedWeights) {
  // Inputs that are no multiple of 4, of a piece of codes, of a block of NF4, and of what a warp takes at
  // once.
  for (const int64_t inputs : {37, 90, 96, 1120}) {
    for (const int64_t rows : {1, 3, 8, 17, 32}) {
      const at::Tensor x = random_.normal({rows, inputs}, type());
      for (const StoredCodes& stored : all_formats(21, inputs)) {
        SCOPED_TRACE(stored.name + " " + std::to_string(inputs) + " " + std::to_string(rows));
        gpu_.take_used();
        const at::Tensor ours = multiplied(x, stored.weight());
        const at::Tensor exact = x.to(at::kDouble).mm(stored.values(type()).t());
        EXPECT_EQ(ours.scalar_type(), type());
        EXPECT_LE(relative_difference(ours, exact.to(type())), bound());
        EXPECT_EQ(gpu_.was_wide(), inputs % 32 == 0 && stored.name != "fp8 in odd blocks");
      }
    }
  }
}

TEST_P(CodedProducts, ARowHasTheSameBitsAloneAndWithOthers) {
  for (const int64_t inputs : {90, 1120}) {
    const at::Tensor x = random_.normal({27, inputs}, type());
    for (const StoredCodes& stored : all_formats(40, inputs)) {
      SCOPED_TRACE(stored.name);
      const at::Tensor together = multiplied(x, stored.weight());
      for (const int64_t row : {0, 7, 8, 16, 26})
        EXPECT_TRUE(multiplied(x.narrow(0, row, 1), stored.weight()).equal(together.narrow(0, row, 1)))
            << row;
      EXPECT_TRUE(multiplied(x.narrow(0, 3, 9), stored.weight()).equal(together.narrow(0, 3, 9)));
    }
  }
}

// Where a block of each output's codes would leave most of a GPU idle.
TEST_P(CodedProducts, OfLongInputsAreSummedInParts) {
  constexpr int64_t outputs = 5;
  const StoredCodes nf4{"nf4", quantise_nf4("w", random_.normal({outputs, 1 << 15}), true)},
      fp8{"fp8", {}, quantise_fp8("w", random_.normal({outputs, 1 << 15}))};
  for (const StoredCodes* stored : {&nf4, &fp8}) {
    const at::Tensor x = random_.normal({2, 1 << 15}, type()), bias = random_.normal({outputs}, type());
    const at::Tensor sums = multiplied(x, stored->weight());
    EXPECT_LE(relative_difference(sums, x.to(at::kDouble).mm(stored->values(type()).t()).to(type())),
              4 * bound());
    EXPECT_TRUE(multiplied(x, stored->weight(bias)).equal(sums + bias));
    EXPECT_TRUE(multiplied(x.narrow(0, 1, 1), stored->weight()).equal(sums.narrow(0, 1, 1)));
  }
  const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(type());
  const Nf4Tensor planned_nf4 = empty_nf4({outputs, 1 << 15}, true, at::kMeta);
  const Fp8Tensor planned_fp8 = empty_fp8({outputs, 1 << 15}, kFp8Row, at::kMeta);
  const at::Tensor planned_x = at::empty({2, 1 << 15}, options);
  const auto bytes_of = [&](const CodedWeight& w) {
    return planned([&] { coded_products(planned_x, {w}); });
  };
  const auto size = static_cast<int64_t>(options.dtype().itemsize());
  EXPECT_EQ(bytes_of({.nf4 = &planned_nf4}),
            (std::vector<int64_t>{2 * outputs * size, 2 * 2 * outputs * int64_t{4}}));
  EXPECT_EQ(bytes_of({.fp8 = &planned_fp8}),
            (std::vector<int64_t>{2 * outputs * size, 4 * 2 * outputs * int64_t{4}}));
}

// q, k and v.
TEST_P(CodedProducts, OfSeveralWeightsTakeOneLaunchAndGiveTheSameBits) {
  const at::Tensor x = random_.normal({3, 192}, type()), bias = random_.normal({48}, type());
  const StoredCodes q{"q", quantise_nf4("w", random_.normal({48, 192}), true)},
      k{"k", quantise_nf4("w", random_.normal({7, 192}), false)},
      v{"v", quantise_nf4("w", random_.normal({30, 192}), true)},
      other{"other", {}, quantise_fp8("w", random_.normal({48, 192}))};
  const auto together = [&](const std::vector<CodedWeight>& weights) {
    gpu_.take_used();
    return as_on_a_gpu([&] { return coded_products(x, weights); });
  };
  const std::vector<at::Tensor> out = together({q.weight(bias), k.weight(), v.weight()});
  EXPECT_EQ(gpu_.take_used().size(), 1u);
  EXPECT_TRUE(out[0].equal(multiplied(x, q.weight()) + bias));
  EXPECT_TRUE(out[1].equal(multiplied(x, k.weight())));
  EXPECT_TRUE(out[2].equal(multiplied(x, v.weight())));
  // More than a launch takes, of both formats.
  const std::vector<at::Tensor> many =
      together({k.weight(), other.weight(bias), k.weight(), k.weight(), q.weight(), v.weight()});
  EXPECT_EQ(gpu_.take_used().size(), 3u);
  EXPECT_TRUE(many[1].equal(multiplied(x, other.weight()) + bias));
  EXPECT_TRUE(many[3].equal(out[1]));
  EXPECT_TRUE(many[4].equal(multiplied(x, q.weight())));
  EXPECT_TRUE(many[5].equal(out[2]));
}

TEST_P(CodedProducts, OfEveryCodeOfFp8AreTheCpus) {
  constexpr int64_t codes = 256;
  Fp8Tensor tensor = empty_fp8({codes, 32}, kFp8Row, at::kCPU);
  tensor.codes.view({codes, 32}).copy_(at::arange(codes).view({codes, 1}).expand({codes, 32}));
  tensor.scales.fill_(0.75);
  at::Tensor x = at::zeros({1, 32}, type());
  x.select(1, 13).fill_(1);
  const at::Tensor ours = multiplied(x, {.fp8 = &tensor}).flatten(),
                   values = widen_fp8_cpu(tensor, 0, codes, type()).select(1, 13);
  EXPECT_TRUE(ours.nan_to_num(9e4).equal(values.nan_to_num(9e4)));
}

// A part of a wider matrix, and one that begins at an odd address.
TEST_P(CodedProducts, TakeRowsWhereverTheyLie) {
  const StoredCodes stored{"nf4", quantise_nf4("w", random_.normal({24, 96}), true)};
  const at::Tensor wide = random_.normal({4, 200}, type());
  for (const at::Tensor& x : {wide.narrow(1, 8, 96), wide.narrow(1, 3, 96), wide.t().narrow(0, 0, 96).t()}) {
    EXPECT_TRUE(multiplied(x, stored.weight()).equal(multiplied(x.clone(), stored.weight())));
    EXPECT_TRUE(gpu_.was_wide());
  }
}

TEST_P(CodedProducts, AreForFewRowsOnTheDeviceWithoutGradients) {
  const at::Tensor x = random_.normal({32, 8}, type());
  EXPECT_FALSE(can_multiply_codes(x)) << "a CPU";
  const CpuActsAsGpu acts;
  EXPECT_TRUE(can_multiply_codes(x));
  EXPECT_FALSE(can_multiply_codes(random_.normal({33, 8}, type())));
  EXPECT_FALSE(can_multiply_codes(x.to(at::kHalf)));
  const at::AutoGradMode with_gradients(true);
  EXPECT_FALSE(can_multiply_codes(x));
}

// Whose tensor cores have no bf16. The other GPUs: Kernels.AreCompiledByNvrtcForEveryKindOfGpu
TEST(CodedProductKernels, AreCompiledByNvrtcForTuring) {
  if (!has_nvrtc()) GTEST_SKIP() << "NVIDIA's compiler is not installed";
  for (const char* form : {"Element=bf16 kWidth=8", "Element=float kWidth=4"})
    EXPECT_EQ(compile_kernels(kernel_file("coded_product"), form, {7, 5}).problem, "") << form;
}

INSTANTIATE_TEST_SUITE_P(Types, CodedProducts, ::testing::Values(at::kFloat, at::kBFloat16));

}  // namespace
}  // namespace trainer
