// The kernels of T5's attention besides those that kernels_test.cpp compares, run on the CPU
// (support/emulated_gpu.h); the values of the whole attention, and its launches and memory on a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/base/strings.h"

#include "device/target_device.h"
#include "memory/meta_memory.h"
#include "nn/attention.h"
#include "ops/attention_heads.h"
#include "ops/attention_weights.h"
#include "ops/emulated_kernels.h"
#include "support/launch_counter.h"
#include "support/reference.h"

namespace trainer {
namespace {

class AttentionKernels : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType type() const { return GetParam(); }
  at::Tensor normal(at::IntArrayRef shape) { return random_.normal(shape, type()); }
  bool bf16() const { return type() == at::kBFloat16; }
  Random random_{41};
};

TEST_P(AttentionKernels, LaysTensorsOutByHeadAndBack) {
  const EmulatedGpu gpu;
  for (const int64_t cols : {16, 5}) {
    const Tensors in{normal({3, 7, 2, cols}).transpose(1, 2), normal({3, 2, 9, cols}),
                     normal({3, 4, 9, cols}).narrow(1, 2, 2)};
    const Tensors products = heads_first(in);
    const Tensors back = heads_last(products, 3, type());
    for (size_t i = 0; i < in.size(); i++) {
      EXPECT_TRUE(products[i].is_contiguous());
      EXPECT_TRUE(products[i].to(type()).equal(in[i].contiguous().flatten(0, 1)));
      EXPECT_TRUE(back[i].equal(in[i]));
      EXPECT_TRUE(back[i].transpose(1, 2).is_contiguous());
    }
  }
}

TEST_P(AttentionKernels, WeightsWithAndWithoutDropoutAreThoseOfTwoCalls) {
  EmulatedGpu gpu;
  const at::Tensor scores = normal({2, 3, 6, 37}), bias = normal({3, 6 + 37 - 1}),
                   lengths = at::tensor(std::vector<int64_t>{37, 11}), keys = at::arange(12).view({2, 6});
  const auto [after, before] = as_on_a_gpu([&] {
    return attention_weights_both(scores, bias, lengths, keys, {0.7, 37, 5, 0.2});
  });
  EXPECT_TRUE(after.equal(as_on_a_gpu([&] {
    return attention_weights(scores, bias, lengths, keys, {0.7, 37, 5, 0.2});
  })));
  EXPECT_TRUE(before.equal(as_on_a_gpu([&] {
    return attention_weights(scores, bias, lengths, keys, {0.7, 37, 5, 0.0});
  })));
}

TEST(AttentionBias, GradientsByBucketAreTheCpus) {
  EmulatedGpu gpu;
  Random random(43);
  const at::Tensor by_distance = random.normal({3, 2, 301}), buckets = at::arange(301).remainder(11);
  const at::Tensor cpu = random.normal({12, 2}), ours = cpu.clone();
  for (const bool first : {true, false}) {
    add_by_bucket(cpu, by_distance, buckets, first);
    as_on_a_gpu([&] { return add_by_bucket(ours, by_distance, buckets, first); });
    EXPECT_LE(relative_difference(ours, cpu), 1e-6);
  }
}

// What T5's self attention in training calls.
struct Problem {
  AttentionInputs inputs;
  BiasAndDropout extra;
};
Problem problem_of(const Tensors& in) {
  Problem out{{in[0], in[1], in[2], 1.0, false, {}}, {}};
  out.extra.bias_weight = in[3];
  out.extra.bias_buckets =
      RelativeBias(8, 16, in[0].size(1), true).buckets(in[0].size(2), in[1].size(2), 0, at::kCPU);
  out.extra.key_lengths = at::full({in[0].size(0)}, in[1].size(2), at::kLong);
  out.extra.row_keys = at::arange(in[0].size(0) * in[0].size(2)).view({in[0].size(0), in[0].size(2)});
  out.extra.key = 77;
  out.extra.p = 0.1;
  return out;
}

TEST_P(AttentionKernels, TogetherAreTheCpus) {
  const auto by_position = [&] { return normal({2, 24, 4, 16}).transpose(1, 2); };
  const Tensors in{by_position(), by_position(), by_position(), normal({8, 4})};
  const at::Tensor weight = normal({2, 4, 24, 16});
  const auto attend = [](const Tensors& t) {
    const Problem problem = problem_of(t);
    return attention_recomputed(problem.inputs, problem.extra);
  };
  const Tensors cpu = value_and_gradients(attend, in, weight, type());
  const OperatorsOnAnEmulatedGpu operators;
  Tensors leaves;
  for (const at::Tensor& t : in) leaves.push_back(t.detach().set_requires_grad(true));
  const Problem problem = problem_of(leaves);
  const at::Tensor out = attention_recomputed(problem.inputs, problem.extra);
  Tensors ours = torch::autograd::grad({out}, leaves, {weight});
  ours.insert(ours.begin(), out.detach());
  for (size_t i = 0; i < ours.size(); i++) {
    EXPECT_LE(relative_difference(ours[i], cpu[i]), bf16() ? 5e-3 : 2e-6) << i;
  }
}

// Forward and backward on `meta`, with attention weights in chunks of that many bytes.
void attend_on_meta(at::ScalarType type, int64_t chunk_bytes) {
  const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(type);
  const auto leaf = [&](at::IntArrayRef shape) { return at::empty(shape, options).set_requires_grad(true); };
  const Tensors in{leaf({8, 4, 512, 64}), leaf({8, 4, 512, 64}), leaf({8, 4, 512, 64}), leaf({32, 4})};
  BiasAndDropout extra;
  extra.bias_weight = in[3];
  extra.bias_buckets = at::empty({1023}, options.dtype(at::kLong));
  extra.row_keys = at::empty({8, 512}, options.dtype(at::kLong));
  extra.p = 0.1;
  extra.chunk_bytes = chunk_bytes;
  const at::Tensor out = attention_recomputed({in[0], in[1], in[2], 1.0, false, {}}, extra);
  torch::autograd::grad({out}, in, {at::empty_like(out)});
}

TEST_P(AttentionKernels, TogetherAreAtMostTwentyLaunches) {
  const PlanningFor planning(c10::kCUDA);
  LaunchCounter counter;
  attend_on_meta(type(), 256 << 20);
  const auto [forward, backward] = counter.take();
  LaunchCounts both = forward;
  both += backward;
  int64_t ours = 0;
  std::string names;
  for (const auto& [name, count] : both.by_name) {
    if (!name.starts_with("aten::")) ours += count;
    names += concat("\n  ", count, " ", name);
  }
  EXPECT_LE(both.products + both.others, 20) << names;
  EXPECT_EQ(ours, 8) << names;
}

// Bytes at the peak of forward and backward on a GPU.
int64_t planned_peak(int64_t chunk_bytes) {
  const PlanningFor planning(c10::kCUDA);
  const MetaRecorder recorder(1);
  attend_on_meta(at::kBFloat16, chunk_bytes);
  int64_t live = 0, most = 0;
  for (const MetaEvent& event : recorder.events()) most = std::max(most, live += event.bytes);
  return most;
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionKernels, ::testing::Values(at::kFloat, at::kBFloat16));

TEST(AttentionChunks, ThatAreSmallerNeedLessMemoryOfAGpu) {
  const int64_t large = planned_peak(32 << 20), small = planned_peak(8 << 20);
  constexpr int64_t all = 8 * 4 * 512 * 512 * 2;  // attention weights in bf16
  EXPECT_GE(large, 3 * all);
  EXPECT_LE(small, large - 3 * all / 2);
}

}  // namespace
}  // namespace trainer
