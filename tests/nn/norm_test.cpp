// RMSNorm's kernel, compared with the definition in fp64 and LibTorch's operators in bf16; its guarantees.
#include "nn/norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "ops/rms_norm.h"
#include "support/reference.h"
#include "support/reference_ops.h"

namespace trainer {
namespace {

constexpr double kEpsilon = 1e-5;

at::Tensor module_norm(const Tensors& in) {
  RmsNorm norm(in[1].size(0), kEpsilon);
  norm.weight.value = in[1];
  return norm.forward(in[0]);
}

// As transformers writes it (LlamaRMSNorm.forward); in fp64 all of it.
at::Tensor composed_norm(const Tensors& in) {
  const at::ScalarType type = in[0].scalar_type();
  const at::Tensor wide = type == at::kDouble ? in[0] : in[0].to(at::kFloat);
  const at::Tensor normalised = wide * at::rsqrt(wide.pow(2).mean(-1, true) + kEpsilon);
  return in[1] * normalised.to(type);
}

TEST(RmsNorm, ValueAndGradientsAreTheDefinitions) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{3, 7}, {1, 33}, {2, 5, 64}, {40, 3, 129}, {2000, 16}}) {
    Random random(3);
    const Tensors in{random.normal(shape), random.normal({shape.back()})};
    const at::Tensor weight = random.normal(shape);
    const Tensors ours = value_and_gradients(module_norm, in, weight, at::kFloat);
    const Tensors exact = value_and_gradients(composed_norm, in, weight, at::kDouble);
    const Tensors theirs = value_and_gradients(composed_norm, in, weight, at::kFloat);
    for (size_t i = 0; i < ours.size(); i++) {
      const double own = relative_difference(theirs[i], exact[i]);
      EXPECT_LE(relative_difference(ours[i], exact[i]), std::max(1.5 * own, 2e-7)) << shape << " " << i;
    }
  }
}

TEST(RmsNorm, InBf16ValuesAreTransformersAndGradientsNoFurtherFromTheDefinition) {
  Random random(5);
  const Tensors in{random.normal({64, 512}, at::kBFloat16), random.normal({512}, at::kBFloat16)};
  const at::Tensor weight = random.normal({64, 512}, at::kBFloat16);
  const Tensors ours = value_and_gradients(module_norm, in, weight, at::kBFloat16);
  const Tensors theirs = value_and_gradients(composed_norm, in, weight, at::kBFloat16);
  const Tensors exact = value_and_gradients(composed_norm, in, weight, at::kDouble);
  // One in some thousands falls on the other side of a rounding, as the sum's last bit differs.
  EXPECT_LE(ours[0].ne(theirs[0]).sum().item<int64_t>(), 32768 / 1000);
  for (size_t i = 0; i < ours.size(); i++) {
    EXPECT_LE(relative_difference(ours[i], exact[i]), 1.01 * relative_difference(theirs[i], exact[i])) << i;
  }
}

at::Tensor module_norm_one_plus(const Tensors& in) {
  RmsNorm norm(in[1].size(0), NormFacts{kEpsilon, NormScale::one_plus_weight});
  norm.weight.value = in[1];
  return norm.forward(in[0]);
}

// Gemma3RMSNorm.forward; in fp64 all of it.
at::Tensor composed_norm_one_plus(const Tensors& in) {
  const bool exact = in[0].scalar_type() == at::kDouble;
  const auto wide = [&](const at::Tensor& x) { return exact ? x : x.to(at::kFloat); };
  const at::Tensor x = wide(in[0]);
  const at::Tensor normalised = x * at::rsqrt(x.pow(2).mean(-1, true) + kEpsilon);
  return (normalised * (1.0 + wide(in[1]))).to(in[0].scalar_type());
}

TEST(RmsNorm, TimesOnePlusTheWeightIsRoundedOnceAsGemmasIs) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Random random(5);
    const Tensors in{random.normal({64, 512}, type), random.normal({512}, type)};
    const at::Tensor weight = random.normal({64, 512}, type);
    const Tensors ours = value_and_gradients(module_norm_one_plus, in, weight, type);
    const Tensors theirs = value_and_gradients(composed_norm_one_plus, in, weight, type);
    const Tensors exact = value_and_gradients(composed_norm_one_plus, in, weight, at::kDouble);
    if (type == at::kBFloat16) {
      EXPECT_LE(ours[0].ne(theirs[0]).sum().item<int64_t>(), 32768 / 1000);
    }
    for (size_t i = 0; i < ours.size(); i++) {
      const double own = relative_difference(theirs[i], exact[i]);
      EXPECT_LE(relative_difference(ours[i], exact[i]), std::max(1.5 * own, 2e-7)) << i;
    }
    const auto [y, rstd] = rms_norm(in[0], in[1], kEpsilon, true);
    const auto [y2, rstd2] = reference::rms_norm(in[0], in[1], kEpsilon, true);
    const auto [gx, gw] = reference::rms_norm_backward(weight, in[0], in[1], rstd2, true, true, true);
    const double bound = type == at::kFloat ? 1e-6 : 1e-3;
    EXPECT_LE(relative_difference(y2, y), bound);
    EXPECT_LE(relative_difference(gx, ours[1]), bound);
    EXPECT_LE(relative_difference(gw, ours[2]), bound);
  }
}

TEST(RmsNorm, ARowsBitsDoNotDependOnItsCompany) {
  Random random(7);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = random.normal({300, 67}, type), g = random.normal({300, 67}, type);
    const at::Tensor weight = random.normal({67}, type);
    const auto [y, rstd] = rms_norm(x, weight, kEpsilon);
    const at::Tensor gx = std::get<0>(rms_norm_backward(g, x, weight, rstd, true, true));
    for (const int64_t row : {0, 131, 299}) {
      const auto [y1, rstd1] = rms_norm(x.narrow(0, row, 1), weight, kEpsilon);
      EXPECT_TRUE(y1[0].equal(y[row]));
      const at::Tensor alone = std::get<0>(
          rms_norm_backward(g.narrow(0, row, 1), x.narrow(0, row, 1), weight, rstd1, true, false));
      EXPECT_TRUE(alone[0].equal(gx[row]));
    }
  }
}

TEST(RmsNorm, TheWeightsGradientHasTheSameBitsOnAnyNumberOfThreads) {
  Random random(9);
  const at::Tensor x = random.normal({3000, 48}), g = random.normal({3000, 48}), weight = random.normal({48});
  const at::Tensor rstd = std::get<1>(rms_norm(x, weight, kEpsilon));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = std::get<1>(rms_norm_backward(g, x, weight, rstd, true, true));
  at::set_num_threads(3);
  const at::Tensor three = std::get<1>(rms_norm_backward(g, x, weight, rstd, true, true));
  at::set_num_threads(threads);
  EXPECT_TRUE(one.equal(three));
}

TEST(RmsNorm, TakesTensorsThatAreNotContiguous) {
  Random random(11);
  const at::Tensor x = random.normal({6, 5, 32}).transpose(0, 1),
                   g = random.normal({32, 5, 6}).permute({1, 2, 0});
  const at::Tensor weight = random.normal({32});
  const auto [y, rstd] = rms_norm(x, weight, kEpsilon);
  EXPECT_TRUE(y.equal(std::get<0>(rms_norm(x.contiguous(), weight, kEpsilon))));
  const auto [gx, gw] = rms_norm_backward(g, x, weight, rstd, true, true);
  const auto [gx2, gw2] = rms_norm_backward(g.contiguous(), x.contiguous(), weight, rstd, true, true);
  EXPECT_TRUE(gx.equal(gx2));
  EXPECT_TRUE(gw.equal(gw2));
}

TEST(RmsNorm, OnlyWhatIsNeededIsComputed) {
  Random random(13);
  const at::Tensor x = random.normal({4, 8}), weight = random.normal({8});
  const at::Tensor rstd = std::get<1>(rms_norm(x, weight, kEpsilon));
  const auto [gx, none] = rms_norm_backward(x, x, weight, rstd, true, false);
  EXPECT_TRUE(gx.defined());
  EXPECT_FALSE(none.defined());
  const auto [nothing, gw] = rms_norm_backward(x, x, weight, rstd, false, true);
  EXPECT_FALSE(nothing.defined());
  EXPECT_TRUE(gw.defined());
}

TEST(RmsNorm, WithLibTorchsOperatorsTheSame) {
  Random random(15);
  const at::Tensor x = random.normal({3, 20, 96}), g = random.normal({3, 20, 96}),
                   weight = random.normal({96});
  const auto [y, rstd] = rms_norm(x, weight, kEpsilon);
  const auto [y2, rstd2] = reference::rms_norm(x, weight, kEpsilon);
  EXPECT_LE(relative_difference(y2, y), 3e-7);
  EXPECT_LE(relative_difference(rstd2, rstd), 3e-7);
  const auto [gx, gw] = rms_norm_backward(g, x, weight, rstd, true, true);
  const auto [gx2, gw2] = reference::rms_norm_backward(g, x, weight, rstd2, true, true);
  EXPECT_LE(relative_difference(gx2, gx), 5e-7);
  EXPECT_LE(relative_difference(gw2, gw), 5e-7);
}

TEST(RmsNorm, OnMetaShapesAndTypesAreThoseOfTheCpu) {
  const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
  const at::Tensor x = at::empty({2, 9, 32}, options), weight = at::empty({32}, options);
  const auto [y, rstd] = rms_norm(x, weight, kEpsilon);
  EXPECT_EQ(y.sizes(), x.sizes());
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(rstd.numel(), 18);
  const auto [gx, gw] = rms_norm_backward(y, x, weight, rstd, true, true);
  EXPECT_EQ(gx.sizes(), x.sizes());
  EXPECT_EQ(gw.sizes(), weight.sizes());
  EXPECT_EQ(gw.scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace trainer
