// T5's attention in one kernel, run on the CPU (support/emulated_gpu.h), compared with the definition in
// fp64.
#include <numeric>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/emulated_kernels.h"
#include "ops/t5_attention.h"
#include "ops/t5_attention_cases.h"
#include "support/compile_kernels.h"
#include "support/long_case.h"
#include "support/planned_bytes.h"

namespace trainer {
namespace {

Tensors by_kernel(const T5AttentionInputs& in, const at::Tensor& g) {
  return as_on_a_gpu([&] {
    const auto [out, lse] = t5_attention(in);
    const T5AttentionGradients to = t5_attention_backward(in, g, out, lse, in.bias_weight.defined());
    Tensors all{out, to.q, to.k, to.v};
    if (to.bias.defined()) all.push_back(to.bias);
    return all;
  });
}

class T5AttentionKernel : public ::testing::TestWithParam<T5AttentionCase> {
 protected:
  EmulatedGpu gpu_;
};

TEST_P(T5AttentionKernel, ValueAndGradientsAreThoseOfTheDefinition) {
  const T5AttentionGiven given(GetParam());
  const Tensors ours = by_kernel(given.in, given.g);
  const Tensors exact = value_and_gradients([&](const Tensors& t) { return definition(given, t); },
                                            given.leaves(), given.g, at::kDouble);
  const char* names[] = {"out", "q", "k", "v", "bias"};
  ASSERT_EQ(ours.size(), exact.size());
  for (size_t i = 0; i < ours.size(); i++) {
    EXPECT_EQ(ours[i].sizes(), exact[i].sizes()) << names[i];
    EXPECT_LE(relative_difference(ours[i], exact[i]), i < 4 ? kBoundOfT5Attention : kBoundOfT5Bias)
        << names[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, T5AttentionKernel, ::testing::ValuesIn(t5_attention_cases()),
                         [](const auto& info) { return info.param.name; });

// Which weights are kept shows where v has a column for each key.
TEST(T5AttentionKernels, DropWhatAttentionWeightsDrop) {
  const EmulatedGpu gpu;
  const int64_t keys = 64, heads = 2, queries = 40;
  T5AttentionInputs in;
  in.q = at::zeros({1, heads, queries, 64}, at::kBFloat16);
  in.k = at::zeros({1, heads, keys, 64}, at::kBFloat16);
  in.v = at::eye(keys).to(at::kBFloat16).expand({1, heads, keys, keys}).contiguous();
  in.row_keys = row_keys(at::tensor({int64_t{5}}), queries);
  in.dropout_key = kKey;
  in.p = 0.3;
  const at::Tensor kept = std::get<0>(as_on_a_gpu([&] { return t5_attention(in); })).ne(0);
  const at::Tensor today = attention_weights(at::zeros({1, heads, queries, keys}), std::nullopt, std::nullopt,
                                             in.row_keys, {1.0, keys, kKey, 0.3});
  EXPECT_TRUE(kept.equal(today.ne(0)));
}

// Rows of the sample `s`, [heads, rows, head_dim], in the result and the gradients.
Tensors of_sample(const T5AttentionCase& c, const Tensors& all, size_t s) {
  Tensors out;
  for (size_t i = 0; i < 4; i++) {
    const std::vector<int64_t> lengths = i < 2 ? c.queries() : c.keys();
    const int64_t first =
        std::accumulate(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(s), int64_t{0});
    out.push_back(all[i].select(0, 0).narrow(1, first, lengths[s]));
  }
  return out;
}

TEST(T5AttentionKernels, APackedSampleHasTheBitsThatItHasAlone) {
  const EmulatedGpu gpu;
  const T5AttentionCase c{"", 16, 2, {{5, 5}, {70, 70}, {64, 64}, {9, 9}}, true, true, true, 0.1};
  const T5AttentionGiven given(c);
  const Tensors all = by_kernel(given.in, given.g);
  for (size_t s = 0; s < c.samples.size(); s++) {
    const int64_t first = given.in.query_starts[static_cast<int64_t>(s)].item<int>(),
                  rows = c.samples[s].first;
    T5AttentionInputs in = given.in;
    for (at::Tensor* x : {&in.q, &in.k, &in.v}) *x = x->narrow(2, first, rows).contiguous();
    in.row_keys = in.row_keys.narrow(1, first, rows);
    in.query_starts = in.key_starts = at::Tensor();
    const Tensors alone = by_kernel(in, given.g.narrow(2, first, rows)), packed = of_sample(c, all, s);
    for (size_t i = 0; i < packed.size(); i++) EXPECT_TRUE(packed[i].equal(alone[i].select(0, 0))) << s << i;
  }
}

TEST(T5AttentionKernels, WhatAPackedSampleHoldsDoesNotReachAnother) {
  const EmulatedGpu gpu;
  const T5AttentionCase c{"", 16, 2, {{6, 6}, {40, 40}, {7, 7}}, true, false, true, 0.1};
  T5AttentionGiven given(c);
  const Tensors before = by_kernel(given.in, given.g);
  for (at::Tensor* x : {&given.in.q, &given.in.k, &given.in.v}) {
    *x = x->clone();
    x->narrow(2, 6, 40).fill_(NAN);
  }
  const Tensors after = by_kernel(given.in, given.g);
  for (const size_t s : {size_t{0}, size_t{2}}) {
    const Tensors a = of_sample(c, before, s), b = of_sample(c, after, s);
    for (size_t i = 0; i < a.size(); i++) EXPECT_TRUE(a[i].equal(b[i])) << s << i;
  }
}

TEST(T5AttentionKernels, AQueryThatSeesNoKeyIsZero) {
  const EmulatedGpu gpu;
  const T5AttentionCase c{"", 64, 2, {{40, 40}, {40, 0}}};
  const T5AttentionGiven given(c);
  const Tensors all = by_kernel(given.in, given.g);
  for (size_t i = 0; i < 4; i++) {
    EXPECT_EQ(all[i].select(0, 1).abs().max().item<float>(), 0.0f) << i;
    EXPECT_TRUE(all[i].isfinite().all().item<bool>()) << i;
  }
}

TEST(T5AttentionKernels, AreCompiledByNvrtcForEveryKindOfGpu) {
  TRAINER_LONG_CASE();
  if (!why_no_nvrtc().empty()) GTEST_SKIP() << why_no_nvrtc();
  test::expect_compiles(kernel_file("t5_attention"), EmulatedGpu());
}

// [B, H, rows, D] on meta.
T5AttentionInputs on_meta(int64_t rows, bool biased) {
  const at::TensorOptions bf16 = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
  T5AttentionInputs in;
  for (at::Tensor* x : {&in.q, &in.k, &in.v}) *x = at::empty({2, rows, 4, 64}, bf16).transpose(1, 2);
  if (biased) {
    in.bias_weight = at::empty({32, 4}, bf16);
    in.bias_buckets = at::empty({257}, bf16.dtype(at::kLong));
  }
  return in;
}

TEST(T5AttentionKernels, NeedMemoryThatGrowsWithTheLength) {
  const auto needed = [](int64_t rows) {
    const T5AttentionInputs in = on_meta(rows, true);
    const std::vector<int64_t> bytes = planned([&] {
      const auto [out, lse] = t5_attention(in);
      t5_attention_backward(in, at::empty_like(out), out, lse, true);
    });
    return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  };
  constexpr int64_t of_bias = 32 * 4 * 4;
  EXPECT_EQ(needed(4096) - of_bias, 4 * (needed(1024) - of_bias));
}

}  // namespace
}  // namespace trainer
