// Attention of several sequences in one row, compared with the definition for each sequence in fp64.
#include "nn/packed_attention.h"

#include <cmath>
#include <numeric>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "device/target_device.h"
#include "ops/cpu_products_are.h"
#include "ops/kernels.h"
#include "support/gpu.h"
#include "support/launch_counter.h"
#include "support/reference.h"

namespace trainer {
namespace {

constexpr double kScale = 0.3;

struct PackedCase {
  std::string name;
  std::vector<int64_t> lengths;
  int64_t heads, kv_heads, head_dim, window;
};

std::string name_of(const ::testing::TestParamInfo<PackedCase>& info) { return info.param.name; }

int64_t tokens_of(const PackedCase& c) {
  return std::accumulate(c.lengths.begin(), c.lengths.end(), int64_t{0});
}

Sequences sequences_of(const PackedCase& c) {
  std::vector<int64_t> starts{0};
  for (const int64_t length : c.lengths) starts.push_back(starts.back() + length);
  return {at::tensor(starts, at::kInt), c.lengths, std::ranges::max(c.lengths)};
}

// The same, known on the device alone, and with empty sequences behind them.
Sequences by_starts_alone(const Sequences& of) {
  const at::Tensor end = of.starts.narrow(0, of.starts.size(0) - 1, 1);
  return {at::cat({of.starts, end, end, end}), {}, 2 * of.longest};
}

// As the projections give them: [1, heads, tokens, head_dim], by position in memory.
Tensors inputs_of(const PackedCase& c, at::ScalarType type) {
  Random random(3);
  Tensors inputs;
  for (const int64_t heads : {c.heads, c.kv_heads, c.kv_heads})
    inputs.push_back(random.normal({1, tokens_of(c), heads, c.head_dim}, type).transpose(1, 2));
  return inputs;
}

// With the matrix of scores, each sequence alone.
at::Tensor definition(const PackedCase& c, const Tensors& in) {
  Tensors outs;
  int64_t begin = 0;
  for (const int64_t length : c.lengths) {
    const auto part = [&](size_t i) { return in[i].narrow(2, begin, length); };
    const int64_t groups = c.heads / c.kv_heads;
    const at::Tensor k = part(1).repeat_interleave(groups, 1), v = part(2).repeat_interleave(groups, 1);
    const at::Tensor distance = at::arange(length).unsqueeze(1) - at::arange(length);  // query - key
    at::Tensor hidden = distance.lt(0);
    if (c.window > 0) hidden = hidden.logical_or(distance.ge(c.window));
    const at::Tensor scores =
        (at::matmul(part(0), k.transpose(2, 3)) * kScale).masked_fill(hidden, -INFINITY);
    outs.push_back(at::matmul(at::softmax(scores, -1), v));
    begin += length;
  }
  return at::cat(outs, 2);
}

// Over the value and all gradients: some are zero where a position sees itself only.
double error(const Tensors& ours, const Tensors& exact) {
  Tensors a, b;
  for (const at::Tensor& x : ours) a.push_back(x.cpu().to(at::kDouble).flatten());
  for (const at::Tensor& x : exact) b.push_back(x.to(at::kDouble).flatten());
  return relative_difference(at::cat(a), at::cat(b));
}

class PackedAttention : public ::testing::TestWithParam<PackedCase> {
 protected:
  using Way = at::Tensor (*)(const AttentionInputs&, const Sequences&, int64_t);
  Tensors values(Way way, const at::Tensor& weight, at::ScalarType type) const {
    const PackedCase& c = GetParam();
    return value_and_gradients(
        [&](const Tensors& in) {
          return way({in[0], in[1], in[2], kScale, /*causal=*/true, {}}, sequences_of(c), c.window);
        },
        inputs_of(c, type), weight, type);
  }
  Tensors expected(const at::Tensor& weight, at::ScalarType of, at::ScalarType type) const {
    return value_and_gradients([&](const Tensors& in) { return definition(GetParam(), in); },
                               inputs_of(GetParam(), of), weight, type);
  }
  at::Tensor weight() const {
    const PackedCase& c = GetParam();
    return Random(4).normal({1, c.heads, tokens_of(c), c.head_dim});
  }
};

TEST_P(PackedAttention, ValueAndGradientsAreThoseOfEachSequenceAlone) {
  const Tensors exact = expected(weight(), at::kFloat, at::kDouble);
  for (const CpuProducts products : {CpuProducts::builtin, CpuProducts::mkl}) {
    const CpuProductsAre set(products);
    for (const Way way : {&packed_attention, &attention_one_by_one}) {
      EXPECT_LE(error(values(way, weight(), at::kFloat), exact), 1e-6);
    }
  }
}

class AttentionByRows : public PackedAttention {};

TEST_P(AttentionByRows, IsThatOfEachSequenceAlone) {
  const Way by_rows = [](const AttentionInputs& in, const Sequences& sequences, int64_t) {
    return attention_by_rows(in, sequences.lengths[0]);
  };
  const Tensors exact = expected(weight(), at::kFloat, at::kDouble);
  EXPECT_LE(error(values(by_rows, weight(), at::kFloat), exact), 1e-6);
}

TEST_P(PackedAttention, InBf16ItIsNoFurtherFromTheDefinitionThanPlainAutograd) {
  const at::Tensor weight = this->weight().to(at::kBFloat16);
  const Tensors exact = expected(weight, at::kBFloat16, at::kDouble),
                plain = expected(weight, at::kBFloat16, at::kBFloat16);
  for (const CpuProducts products : {CpuProducts::builtin, CpuProducts::mkl}) {
    const CpuProductsAre set(products);
    EXPECT_LE(error(values(&packed_attention, weight, at::kBFloat16), exact), 1.2 * error(plain, exact));
  }
}

TEST_P(PackedAttention, OnAGpuItIsNoFurtherFromTheDefinitionThanPlainAutograd) {
  const std::string why = test::why_no_gpu(kernel_file("rms_norm"), "Element=float kWidth=1");
  if (!why.empty()) GTEST_SKIP() << why;
  const at::Tensor weight = this->weight().to(at::kBFloat16);
  const Tensors exact = expected(weight, at::kBFloat16, at::kDouble),
                plain = expected(weight, at::kBFloat16, at::kBFloat16);
  Tensors inputs;
  for (const at::Tensor& input : inputs_of(GetParam(), at::kBFloat16)) inputs.push_back(test::on_gpu(input));
  Sequences all = sequences_of(GetParam());
  all.starts = test::on_gpu(all.starts);
  for (const Sequences& sequences : {all, by_starts_alone(all)}) {
    if (sequences.lengths.empty() && !packs_in_one_kernel(at::kBFloat16, GetParam().head_dim)) continue;
    const auto function = [&](const Tensors& in) {
      return packed_attention({in[0], in[1], in[2], kScale, true, {}}, sequences, GetParam().window);
    };
    const Tensors ours = value_and_gradients(function, inputs, test::on_gpu(weight), at::kBFloat16);
    EXPECT_LE(error(ours, exact), 1.2 * error(plain, exact));
  }
}

TEST_P(PackedAttention, TakesLengthsFromTheDeviceWithTheSameBits) {
  const at::Tensor weight = this->weight().to(at::kBFloat16);
  const Sequences all = sequences_of(GetParam());
  std::vector<Tensors> found;
  for (const Sequences& sequences : {all, by_starts_alone(all)}) {
    const auto function = [&](const Tensors& in) {
      return packed_attention({in[0], in[1], in[2], kScale, true, {}}, sequences, GetParam().window);
    };
    found.push_back(
        value_and_gradients(function, inputs_of(GetParam(), at::kBFloat16), weight, at::kBFloat16));
  }
  for (size_t i = 0; i < found[0].size(); i++) EXPECT_TRUE(found[1][i].equal(found[0][i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Cases, PackedAttention,
                         ::testing::Values(PackedCase{"one", {5}, 2, 2, 8, 0},
                                           PackedCase{"single_tokens", {1, 1, 1}, 2, 1, 8, 0},
                                           PackedCase{"several", {37, 1, 12, 200}, 4, 2, 16, 0},
                                           PackedCase{"blocks", {97, 300, 33}, 6, 2, 40, 0},
                                           PackedCase{"wide_heads", {130, 50}, 2, 2, 64, 0},
                                           PackedCase{"one_head_of_two", {40, 9}, 1, 1, 2, 0},
                                           PackedCase{"long", {1100, 1024, 385, 20}, 2, 2, 8, 0},
                                           PackedCase{"window_beyond", {60, 200}, 2, 1, 8, 300},
                                           PackedCase{"windows", {37, 5, 8, 300, 9}, 4, 2, 16, 8},
                                           PackedCase{"window_of_one", {4, 70}, 2, 1, 8, 1},
                                           PackedCase{"large_window", {900, 100, 101, 1300}, 2, 1, 8, 100}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(OneLength, AttentionByRows,
                         ::testing::Values(PackedCase{"one", {5}, 2, 2, 8, 0},
                                           PackedCase{"single_tokens", {1, 1, 1}, 2, 1, 8, 0},
                                           PackedCase{"alike", {70, 70, 70}, 4, 2, 16, 0}),
                         name_of);

TEST(PackedAttentionTest, ForAGpuSequencesOfOneLengthAreTheRowsOfABatch) {
  const PlanningFor planning(c10::kCUDA);
  const auto operators = [](const std::vector<int64_t>& lengths, int64_t window) {
    const PackedCase c{"", lengths, 4, 2, 16, window};
    Tensors in = inputs_of(c, at::kBFloat16);
    for (at::Tensor& x : in) x = x.to(at::kMeta);
    const Sequences sequences{
        at::empty({std::ssize(lengths) + 1}, at::TensorOptions(at::kMeta).dtype(at::kInt)), lengths};
    LaunchCounter counter;
    const at::Tensor out = packed_attention({in[0], in[1], in[2], kScale, true, {}}, sequences, window);
    EXPECT_EQ(out.sizes(), in[0].sizes());
    return counter.take().forward.by_name;
  };
  const std::string rows = "aten::_scaled_dot_product_flash_attention",
                    row = "aten::_flash_attention_forward";
  EXPECT_TRUE(operators({70, 70}, 0).contains(rows));
  EXPECT_TRUE(operators({70, 70}, 70).contains(rows));
  EXPECT_TRUE(operators({70, 70}, 69).contains(row));
  EXPECT_TRUE(operators({70, 69}, 0).contains(row));
}

TEST(PackedAttentionTest, WhatOneSequenceHoldsDoesNotReachAnother) {
  const PackedCase c{"", {6, 40, 7}, 4, 2, 16, 0};
  Tensors in = inputs_of(c, at::kFloat);
  const auto out = [&] {
    return packed_attention({in[0], in[1], in[2], kScale, true, {}}, sequences_of(c), c.window);
  };
  const at::Tensor before = out();
  for (at::Tensor& x : in) x = x.clone();
  for (at::Tensor& x : in) x.narrow(2, 6, 40).fill_(NAN);
  const at::Tensor after = out();
  EXPECT_TRUE(after.narrow(2, 0, 6).equal(before.narrow(2, 0, 6)));
  EXPECT_TRUE(after.narrow(2, 46, 7).equal(before.narrow(2, 46, 7)));
}

}  // namespace
}  // namespace trainer
