// The kernels of recurrent layers on a GPU, compared with the CPU's operators and with the definition;
// skipped without a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/device/device.h"

#include "device/kernels.h"
#include "ops/causal_conv.h"
#include "ops/gated_delta.h"
#include "ops/gated_delta_definition.h"
#include "ops/gated_norm_given.h"
#include "support/gpu.h"
#include "support/reference.h"

namespace trainer {
namespace {

using test::on_gpu;

class OnAGpuRecurrentLayers : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    const std::string why = test::why_no_gpu(kernel_file("causal_conv"), "Element=float kWidth=1");
    if (!why.empty()) GTEST_SKIP() << why;
    use_tf32(false);  // fp32 products of LibTorch are in fp32
  }
  void TearDown() override { use_tf32(true); }
  bool bf16() const { return GetParam() == at::kBFloat16; }
};

const TokenRuns& runs_of_several_lengths() {
  static const TokenRuns runs{{0, 1}, {1, 63}, {64, 64}, {130, 65}, {200, 300}, {500, 2}};
  return runs;
}

TEST_P(OnAGpuRecurrentLayers, CausalConvolutionIsTheCpus) {
  Random random(61);
  for (const int64_t channels : {67, 256}) {
    const at::Tensor x = random.normal({510, channels}, GetParam()),
                     g = random.normal({510, channels}, GetParam()),
                     weight = random.normal({channels, 1, 4}, GetParam());
    const auto all = [&](const auto& place) {
      const auto [gx, gw] = causal_conv_backward(place(g), place(x), place(weight), runs_of_several_lengths(),
                                                 /*silu=*/true, /*needs_weight=*/true);
      return Tensors{causal_conv(place(x), place(weight), runs_of_several_lengths(), true), gx, gw};
    };
    const Tensors cpu = all([](const at::Tensor&t) { return t; }), gpu = all(on_gpu), again = all(on_gpu);
    for (size_t i = 0; i < cpu.size(); i++) {
      EXPECT_LE(relative_difference(gpu[i].cpu(), cpu[i]), bf16() ? 2e-3 : 1e-6) << i;
      EXPECT_TRUE(gpu[i].equal(again[i])) << i;
    }
  }
}

TEST_P(OnAGpuRecurrentLayers, TheGatedDeltaRuleIsTheDefinition) {
  for (const DeltaShape& shape : {DeltaShape{2, 4, 128, 128}, {2, 2, 64, 64}, {1, 3, 32, 32}}) {
    Random random(62);
    const at::Tensor qkv = random.normal({510, shape.columns()}, GetParam()),
                     g = random.normal({510, shape.values()}, GetParam()),
                     decay = random.normal({510, shape.value_heads}).abs().mul(-0.3),
                     beta = random.normal({510, shape.value_heads}).sigmoid();
    ASSERT_TRUE(takes_gated_delta(on_gpu(qkv), shape));
    const auto all = [&] {
      const DeltaInputs in{on_gpu(qkv), on_gpu(decay), on_gpu(beta)};
      const at::Tensor out = gated_delta(in, shape, runs_of_several_lengths(), false).out;
      const auto [a, b, c] = gated_delta_backward(on_gpu(g), in, {}, shape, runs_of_several_lengths());
      return Tensors{out, a, b, c};
    };
    const Tensors gpu = all(), again = all();
    const Tensors exact = value_and_gradients(
        [&](const Tensors& t) { return by_definition(t, shape, runs_of_several_lengths()); },
        {qkv, decay, beta}, g, at::kDouble);
    for (size_t i = 0; i < exact.size(); i++) {
      EXPECT_LE(relative_difference(gpu[i].cpu(), exact[i]), bf16() ? 5e-3 : 2e-6) << i;
      EXPECT_TRUE(gpu[i].equal(again[i])) << i;
    }
  }
}

TEST_P(OnAGpuRecurrentLayers, TheGatedDeltaRuleIsTheComposedOne) {
  const DeltaShape shape{4, 4, 128, 128};
  const TokenRuns runs{{0, 2048}, {2048, 1500}};
  Random random(63);
  const DeltaInputs in{on_gpu(random.normal({4096, shape.columns()}, GetParam())),
                       on_gpu(random.normal({4096, 4}).abs().mul(-0.1)),
                       on_gpu(random.normal({4096, 4}).sigmoid())};
  const DeltaResult ours = gated_delta(in, shape, runs, true),
                    composed = gated_delta_composed(in, shape, runs, true);
  EXPECT_LE(relative_difference(ours.out.cpu(), composed.out.cpu()), bf16() ? 5e-3 : 1e-5);
  EXPECT_LE(relative_difference(ours.last_states.cpu(), composed.last_states.cpu()), bf16() ? 5e-3 : 1e-5);
}

TEST_P(OnAGpuRecurrentLayers, TheGatedNormIsTheDefinition) {
  for (const auto& [heads, size] : kHeadsOfGatedNorms) {
    const GatedNormGiven given(heads, size, GetParam());
    const Tensors gpu = given.by_operator(on_gpu), again = given.by_operator(on_gpu);
    const Tensors exact = value_and_gradients([&](const Tensors& t) { return given.definition(t); },
                                              given.in(), given.g, at::kDouble);
    for (size_t i = 0; i < exact.size(); i++) {
      EXPECT_LE(relative_difference(gpu[i].cpu(), exact[i]), bf16() ? 5e-3 : 2e-6) << i;
      EXPECT_TRUE(gpu[i].equal(again[i])) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, OnAGpuRecurrentLayers, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace trainer
