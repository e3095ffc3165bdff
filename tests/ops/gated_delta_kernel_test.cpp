// The kernels of the gated delta rule, run on the CPU (support/emulated_gpu.h), compared with the definition
// in fp64.
#include <algorithm>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/gated_delta_rule.h"
#include "ops/emulated_kernels.h"
#include "ops/gated_delta.h"
#include "ops/gated_delta_definition.h"
#include "support/planned_bytes.h"

namespace trainer {
namespace {

struct DeltaCase {
  std::string name;
  DeltaShape shape;
  TokenRuns runs;
  int64_t tokens;  // padding included
};

std::vector<DeltaCase> delta_cases() {
  return {{"one_token", {1, 1, 32, 32}, {{0, 1}}, 1},
          {"chunk_less_one", {1, 1, 32, 32}, {{0, 63}}, 63},
          {"one_chunk", {1, 1, 32, 32}, {{0, 64}}, 64},
          {"chunk_and_one", {1, 1, 32, 32}, {{0, 65}}, 65},
          {"grouped", {2, 4, 32, 32}, {{0, 70}}, 70},
          {"packed", {1, 1, 32, 32}, {{0, 63}, {63, 64}, {127, 65}, {192, 1}, {193, 300}}, 493},
          {"padded", {1, 2, 32, 32}, {{0, 70}, {130, 65}, {200, 1}}, 260},
          {"wide_heads", {1, 1, 128, 128}, {{0, 65}, {65, 30}}, 100}};
}

// qkv, decay and beta; and the gradient of the result.
struct DeltaGiven {
  DeltaGiven(const DeltaCase& c, at::ScalarType type) {
    Random random(51);
    qkv = random.normal({c.tokens, c.shape.columns()}, type);
    decay = random.normal({c.tokens, c.shape.value_heads}).abs().mul(-0.3);
    beta = random.normal({c.tokens, c.shape.value_heads}).sigmoid();
    g = random.normal({c.tokens, c.shape.values()}, type);
  }
  DeltaInputs in() const { return {qkv, decay, beta}; }
  at::Tensor qkv, decay, beta, g;
};

// The result and the gradients of qkv, decay and beta.
Tensors by_kernels(const DeltaGiven& given, const DeltaShape& shape, const TokenRuns& runs) {
  return as_on_a_gpu([&] {
    const at::Tensor out = gated_delta(given.in(), shape, runs, false).out;
    const auto [g_qkv, g_decay, g_beta] = gated_delta_backward(given.g, given.in(), {}, shape, runs);
    return Tensors{out, g_qkv, g_decay, g_beta};
  });
}

Tensors exact(const DeltaGiven& given, const DeltaShape& shape, const TokenRuns& runs) {
  return value_and_gradients([&](const Tensors& t) { return by_definition(t, shape, runs); },
                             {given.qkv, given.decay, given.beta}, given.g, at::kDouble);
}

class GatedDeltaKernels : public ::testing::TestWithParam<std::tuple<at::ScalarType, DeltaCase>> {
 protected:
  bool bf16() const { return std::get<0>(GetParam()) == at::kBFloat16; }
  EmulatedGpu gpu_;
};

TEST_P(GatedDeltaKernels, ValueAndEveryGradientAreTheDefinitions) {
  const auto& [type, c] = GetParam();
  const DeltaGiven given(c, type);
  const Tensors ours = by_kernels(given, c.shape, c.runs), expected = exact(given, c.shape, c.runs);
  const char* names[] = {"out", "qkv", "decay", "beta"};
  for (size_t i = 0; i < ours.size(); i++) {
    EXPECT_EQ(ours[i].sizes(), expected[i].sizes());
    EXPECT_LE(relative_difference(ours[i], expected[i]), bf16() ? 5e-3 : 2e-6) << names[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GatedDeltaKernels,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::ValuesIn(delta_cases())),
                         [](const auto& info) {
                           return std::get<1>(info.param).name + c10::toString(std::get<0>(info.param));
                         });

// As a projection that several layers share gives it.
TEST(GatedDeltaKernel, TakesColumnsOfAWiderMatrix) {
  const EmulatedGpu gpu;
  const DeltaCase c = delta_cases()[3];
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    DeltaGiven given(c, type);
    const Tensors dense = by_kernels(given, c.shape, c.runs);
    given.qkv = at::cat({given.g, given.qkv, given.g}, 1).narrow(1, given.g.size(1), given.qkv.size(1));
    const Tensors own = by_kernels(given, c.shape, c.runs);
    for (size_t i = 0; i < own.size(); i++) EXPECT_TRUE(own[i].equal(dense[i])) << i;
  }
}

TEST(GatedDeltaKernel, ASampleHasTheBitsThatItHasAloneWhateverIsInTheOthers) {
  const EmulatedGpu gpu;
  const DeltaCase c{"", {1, 1, 32, 32}, {{0, 64}, {64, 70}, {140, 65}, {205, 1}}, 210};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    DeltaGiven given(c, type);
    const Tensors clean = by_kernels(given, c.shape, c.runs);
    const auto part = [](const at::Tensor& x, const TokenRun& run) {
      return x.narrow(0, run.first, run.tokens).clone();
    };
    for (const TokenRun& run : c.runs) {
      DeltaGiven alone = given;
      for (at::Tensor* x : {&alone.qkv, &alone.decay, &alone.beta, &alone.g}) *x = part(*x, run);
      const Tensors own = by_kernels(alone, c.shape, {{0, run.tokens}});
      for (size_t i = 0; i < own.size(); i++)
        EXPECT_TRUE(own[i].equal(part(clean[i], run))) << run.first << i;
    }
    given.qkv.narrow(0, 64, 76).fill_(NAN);  // a sample, and the padding behind it
    const Tensors other = by_kernels(given, c.shape, c.runs);
    for (size_t i = 0; i < other.size(); i++) {
      for (const size_t run : {0, 2, 3})
        EXPECT_TRUE(part(other[i], c.runs[run]).equal(part(clean[i], c.runs[run]))) << i;
      EXPECT_EQ(other[i].narrow(0, 134, 6).abs().max().item<float>(), 0.0f) << i;  // padding
    }
  }
}

TEST(GatedDeltaKernel, TakesStrongDecaysAndGatesThatAreClosed) {
  const EmulatedGpu gpu;
  const DeltaCase c = delta_cases()[3];
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    DeltaGiven given(c, type);
    given.decay.mul_(100.0);
    given.beta.narrow(0, 5, 20).zero_();
    given.qkv.narrow(0, 30, 2).zero_();
    const Tensors ours = by_kernels(given, c.shape, c.runs), expected = exact(given, c.shape, c.runs);
    for (size_t i = 0; i < ours.size(); i++)
      EXPECT_LE(relative_difference(ours[i], expected[i]), type == at::kFloat ? 2e-6 : 5e-3) << i;
  }
}

TEST(GatedDeltaKernel, GoesOnFromAState) {
  const EmulatedGpu gpu;
  const DeltaCase c{"", {1, 2, 32, 32}, {{0, 150}}, 150};
  const DeltaGiven given(c, at::kFloat);
  const DeltaResult all = gated_delta_cpu(given.in(), c.shape, c.runs, true);
  at::Tensor state;
  int64_t begin = 0;
  for (const int64_t tokens : {70, 1, 79}) {
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, begin, tokens); };
    const DeltaInputs in{part(given.qkv), part(given.decay), part(given.beta), state};
    const DeltaResult result = as_on_a_gpu([&] { return gated_delta(in, c.shape, {{0, tokens}}, true); });
    EXPECT_LE(relative_difference(result.out, part(all.out)), 2e-6) << begin;
    state = result.last_states;
    begin += tokens;
  }
  EXPECT_LE(relative_difference(state, all.last_states), 2e-6);
}

TEST(GatedDeltaKernel, TakesMoreSamplesThanOneTableHas) {
  const EmulatedGpu gpu;
  DeltaCase c{"", {1, 1, 32, 32}, {}, 520};
  for (int64_t i = 0; i < 260; i++) c.runs.push_back({2 * i, 1 + i % 2});
  const DeltaGiven given(c, at::kFloat);
  const DeltaResult cpu = gated_delta_cpu(given.in(), c.shape, c.runs, true);
  const DeltaResult ours = as_on_a_gpu([&] { return gated_delta(given.in(), c.shape, c.runs, true); });
  EXPECT_LE(relative_difference(ours.out, cpu.out), 2e-6);
  EXPECT_LE(relative_difference(ours.last_states, cpu.last_states), 2e-6);
}

// Seven launches, or nine with the convolution's, whatever the samples; heads of other sizes are composed.
TEST(GatedDeltaKernel, IsLaunchedTheSameNumberOfTimesForAnySamples) {
  EmulatedGpu gpu;
  for (const int64_t dim : {32, 16}) {
    for (const DeltaCase& c : {DeltaCase{"", {1, 2, dim, dim}, {{0, 40}}, 40},
                               DeltaCase{"", {1, 2, dim, dim}, {{0, 40}, {40, 200}, {250, 3}}, 260}}) {
      const DeltaGiven given(c, at::kFloat);
      const at::Tensor weight = Random(52).normal({c.shape.columns(), 1, 4});
      const Tensors leaves{given.qkv, given.decay, given.beta};
      gpu.take_used();
      as_on_a_gpu([&] {
        return value_and_gradients(
            [&](const Tensors& t) {
              return gated_delta_rule({t[0], t[1], t[2]}, weight, c.shape, c.runs);
            },
            leaves, given.g, at::kFloat);
      });
      EXPECT_EQ(gpu.take_used().size(), dim == 32 ? 3 + 6 + 3 : 3);
    }
  }
}

TEST(GatedDeltaKernel, NeedsMemoryThatGrowsWithTheLength) {
  const auto needed = [](int64_t tokens) {
    const DeltaShape shape{4, 8, 128, 128};
    const at::TensorOptions meta = at::TensorOptions(at::kMeta);
    const DeltaInputs in{at::empty({tokens, shape.columns()}, meta.dtype(at::kBFloat16)),
                         at::empty({tokens, 8}, meta.dtype(at::kFloat)),
                         at::empty({tokens, 8}, meta.dtype(at::kFloat))};
    int64_t sum = 0;
    for (const int64_t bytes : planned([&] {
           const at::Tensor out = gated_delta(in, shape, {{0, tokens}}, false).out;
           gated_delta_backward(out, in, {}, shape, {{0, tokens}});
         }))
      sum += bytes;
    return sum;
  };
  EXPECT_EQ(needed(4096), 4 * needed(1024));
}

}  // namespace
}  // namespace trainer
