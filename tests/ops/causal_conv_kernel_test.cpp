// The kernels of causal convolutions, run on the CPU (support/emulated_gpu.h), compared with the CPU's
// operator.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/causal_conv.h"
#include "ops/emulated_kernels.h"
#include "support/reference.h"

namespace trainer {
namespace {

struct ConvCase {
  int64_t channels, width;
  bool silu;
  TokenRuns runs;
  int64_t tokens;  // padding included
};

// Lengths below the convolution's width, of whole tiles and of one token more; padding between and behind.
std::vector<ConvCase> conv_cases() {
  const TokenRuns runs{{0, 1}, {1, 2}, {3, 3}, {10, 32}, {42, 33}, {80, 64}, {144, 65}, {210, 300}};
  return {{64, 4, true, runs, 515}, {64, 4, false, runs, 515}, {40, 3, false, runs, 515},
          {33, 4, true, runs, 515}, {16, 2, true, runs, 515},  {300, 4, true, {{0, 130}}, 130}};
}

// The value, and the gradients of x and of the weight.
Tensors conv_and_gradients(const ConvCase& c, at::ScalarType type) {
  Random random(41);
  const at::Tensor x = random.normal({c.tokens, c.channels}, type);
  const at::Tensor weight = random.normal({c.channels, 1, c.width}, type);
  const at::Tensor g = random.normal({c.tokens, c.channels}, type);
  const auto [gx, g_weight] = causal_conv_backward(g, x, weight, c.runs, c.silu, /*needs_weight=*/true);
  return {causal_conv(x, weight, c.runs, c.silu), gx, g_weight};
}

class CausalConvKernels : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  EmulatedGpu gpu_;
};

TEST_P(CausalConvKernels, ValueAndGradientsAreTheCpus) {
  for (const ConvCase& c : conv_cases()) {
    const Tensors cpu = conv_and_gradients(c, GetParam());
    const Tensors ours = as_on_a_gpu([&] { return conv_and_gradients(c, GetParam()); });
    EXPECT_EQ(gpu_.was_wide(), c.channels % (GetParam() == at::kFloat ? 4 : 8) == 0);
    for (size_t i = 0; i < ours.size(); i++) {
      EXPECT_EQ(ours[i].sizes(), cpu[i].sizes());
      EXPECT_LE(relative_difference(ours[i], cpu[i]), GetParam() == at::kFloat ? 5e-7 : 3e-4)
          << i << " of " << c.channels << " channels";
    }
  }
}

// As a projection that several layers share gives it.
TEST_P(CausalConvKernels, TakeColumnsOfAWiderMatrix) {
  const ConvCase c = conv_cases()[0];
  const at::Tensor wide = Random(42).normal({c.tokens, 3 * c.channels}, GetParam());
  const at::Tensor x = wide.narrow(1, c.channels, c.channels), g = wide.narrow(1, 0, c.channels);
  const at::Tensor weight = Random(43).normal({c.channels, 1, c.width}, GetParam());
  const auto run = [&](const at::Tensor& from, const at::Tensor& grad) {
    return as_on_a_gpu([&] {
      const auto [gx, g_weight] = causal_conv_backward(grad, from, weight, c.runs, true, true);
      return Tensors{causal_conv(from, weight, c.runs, true), gx, g_weight};
    });
  };
  const Tensors own = run(x, g), dense = run(x.contiguous(), g.contiguous());
  for (size_t i = 0; i < own.size(); i++) EXPECT_TRUE(own[i].equal(dense[i])) << i;
}

TEST_P(CausalConvKernels, ARunHasTheSameBitsAloneAndAmongOthersThatHoldNoNumbers) {
  const ConvCase c = conv_cases()[0];
  at::Tensor x = Random(44).normal({c.tokens, c.channels}, GetParam());
  const at::Tensor weight = Random(45).normal({c.channels, 1, c.width}, GetParam());
  const at::Tensor g = Random(46).normal({c.tokens, c.channels}, GetParam());
  const auto run = [&](const at::Tensor& from, const at::Tensor& grad, const TokenRuns& runs) {
    return as_on_a_gpu([&] {
      return Tensors{causal_conv(from, weight, runs, true),
                     std::get<0>(causal_conv_backward(grad, from, weight, runs, true, false))};
    });
  };
  const TokenRun kept = c.runs[6];
  const at::Tensor own = x.narrow(0, kept.first, kept.tokens).clone();
  x = at::full_like(x, NAN);
  x.narrow(0, kept.first, kept.tokens).copy_(own);
  const Tensors all = run(x, g, c.runs);
  const Tensors alone = run(own, g.narrow(0, kept.first, kept.tokens), {{0, kept.tokens}});
  for (size_t i = 0; i < all.size(); i++) {
    EXPECT_TRUE(all[i].narrow(0, kept.first, kept.tokens).equal(alone[i])) << i;
    EXPECT_EQ(all[i].narrow(0, 510, 5).abs().max().item<float>(), 0.0f) << i;  // padding
  }
}

TEST_P(CausalConvKernels, TakeMoreSamplesThanOneTableHas) {
  ConvCase c{16, 4, true, {}, 900};
  for (int64_t i = 0; i < 300; i++) c.runs.push_back({3 * i, 1 + i % 3});
  const Tensors cpu = conv_and_gradients(c, GetParam());
  const Tensors ours = as_on_a_gpu([&] { return conv_and_gradients(c, GetParam()); });
  for (size_t i = 0; i < ours.size(); i++)
    EXPECT_LE(relative_difference(ours[i], cpu[i]), GetParam() == at::kFloat ? 5e-7 : 3e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(Types, CausalConvKernels, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace trainer
