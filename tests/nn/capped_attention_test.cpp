// Attention in chunks with capped scores or wide heads, compared with the definition in fp64: windows,
// grouped heads, packed rows.
#include "nn/capped_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "device/target_device.h"
#include "memory/meta_memory.h"
#include "support/reference.h"

namespace trainer {
namespace {

constexpr double kCappedScale = 0.7, kCap = 1.5;

struct CappedCase {
  std::string name;
  int64_t batch, heads, kv_heads, window;
  std::vector<int64_t> lengths;  // more than one: packed
  double cap = kCap;
  int64_t head_dim = 8;

  double scale() const { return kCappedScale * std::sqrt(8.0 / static_cast<double>(head_dim)); }
};

// With the matrix of scores, each sequence alone.
at::Tensor capped_definition(const CappedCase& c, const Tensors& in) {
  Tensors outs;
  int64_t begin = 0;
  for (const int64_t length : c.lengths) {
    const auto part = [&](size_t i) { return in[i].narrow(2, begin, length); };
    const int64_t groups = c.heads / c.kv_heads;
    const at::Tensor k = part(1).repeat_interleave(groups, 1), v = part(2).repeat_interleave(groups, 1);
    const at::Tensor distance = at::arange(length).unsqueeze(1) - at::arange(length);  // query - key
    at::Tensor hidden = distance.lt(0);
    if (c.window > 0) hidden = hidden.logical_or(distance.ge(c.window));
    const at::Tensor scores = at::matmul(part(0), k.transpose(2, 3)) * c.scale();
    const at::Tensor capped = c.cap > 0 ? at::tanh(scores / c.cap) * c.cap : scores;
    outs.push_back(at::matmul(at::softmax(capped.masked_fill(hidden, -INFINITY), -1), v));
    begin += length;
  }
  return at::cat(outs, 2);
}

class CappedAttention : public ::testing::TestWithParam<CappedCase> {
 protected:
  Tensors inputs(at::ScalarType type) const {
    const CappedCase& c = GetParam();
    const int64_t tokens = std::accumulate(c.lengths.begin(), c.lengths.end(), int64_t{0});
    Random random(3);
    Tensors inputs;
    for (const int64_t heads : {c.heads, c.kv_heads, c.kv_heads})
      inputs.push_back(random.normal({c.batch, tokens, heads, c.head_dim}, type).transpose(1, 2));
    inputs.push_back(random.normal({c.batch, c.heads, tokens, c.head_dim}, type));
    return inputs;
  }
  at::Tensor ours(const Tensors& in) const {
    const CappedCase& c = GetParam();
    const std::vector<int64_t> lengths = c.lengths.size() > 1 ? c.lengths : std::vector<int64_t>{};
    return capped_attention({in[0], in[1], in[2], c.scale(), /*causal=*/true, {}},
                            {c.cap, c.window, lengths});
  }
};

TEST_P(CappedAttention, ValueAndGradientsAreTheDefinitions) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Tensors in = inputs(type);
    const at::Tensor weight = in.back();
    in.pop_back();
    const Tensors values = value_and_gradients([&](const Tensors& x) { return ours(x); }, in, weight, type);
    const Tensors exact = value_and_gradients(
        [&](const Tensors& x) { return capped_definition(GetParam(), x); }, in, weight, at::kDouble);
    for (size_t i = 0; i < values.size(); i++)
      EXPECT_LE(relative_difference(values[i], exact[i]), type == at::kFloat ? 1e-6 : 1e-2) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, CappedAttention,
    ::testing::Values(CappedCase{"Plain", 2, 4, 4, 0, {37}}, CappedCase{"Grouped", 2, 6, 2, 0, {37}},
                      CappedCase{"SeveralChunks", 2, 8, 2, 0, {1100}},
                      CappedCase{"Windows", 2, 4, 2, 7, {150}}, CappedCase{"WindowOfOne", 1, 2, 2, 1, {5}},
                      CappedCase{"Packed", 1, 4, 2, 0, {1, 30, 7}},
                      CappedCase{"PackedWindows", 1, 4, 2, 7, {3, 150, 7, 66}},
                      CappedCase{"NoCap", 2, 4, 2, 0, {37}, 0.0},
                      CappedCase{"NoCapWindows", 1, 4, 2, 7, {150}, 0.0},
                      CappedCase{"NoCapPackedWideHeads", 1, 4, 1, 0, {3, 150}, 0.0, 512}),
    [](const auto& info) { return info.param.name; });

// While generating: one query a row, and a mask where rows are of different lengths.
TEST(CappedAttentionOfOneQuery, SeesWhatTheMaskLetsItSee) {
  Random random(5);
  const at::Tensor q = random.normal({2, 4, 1, 8}), k = random.normal({2, 2, 9, 8}),
                   v = random.normal({2, 2, 9, 8});
  const at::Tensor hidden = at::arange(9).view({1, 1, 1, 9}).ge(at::tensor({9, 4}).view({2, 1, 1, 1}));
  const at::Tensor mask = at::zeros({2, 1, 1, 9}).masked_fill(hidden, -INFINITY);
  const at::Tensor out = capped_attention({q, k, v, kCappedScale, false, mask}, {kCap, 0, {}});
  const at::Tensor all = capped_attention({q, k, v, kCappedScale, false, {}}, {kCap, 0, {}});
  EXPECT_LE(relative_difference(out[0], all[0]), 1e-6);
  const auto first = [](const at::Tensor& x) { return x.narrow(0, 1, 1).narrow(2, 0, 4); };
  const at::Tensor few =
      capped_attention({q.narrow(0, 1, 1), first(k), first(v), kCappedScale, false, {}}, {kCap, 0, {}});
  EXPECT_LE(relative_difference(out[1], few[0]), 1e-6);
}

// LibTorch's operators would keep the matrix of all heads' scores, or refuse: Gemma 4 has heads of 512.
TEST(WideHeads, AreAttendedToInChunks) {
  const PlanningFor planned(c10::kCUDA);
  const auto heads_of = [](int64_t width) {
    return at::empty({1, 2, 4, width}, at::TensorOptions().dtype(at::kBFloat16).device(at::kMeta));
  };
  EXPECT_FALSE(is_too_wide_for_fused(heads_of(256)));
  EXPECT_TRUE(is_too_wide_for_fused(heads_of(512)));
  EXPECT_FALSE(is_too_wide_for_fused(at::empty({1, 2, 4, 512})));
}

// The most memory at once beside the inputs, forward and backward.
int64_t bytes_by_token(int64_t tokens) {
  const at::TensorOptions options = at::TensorOptions().dtype(at::kBFloat16).device(at::kMeta);
  const at::Tensor q = at::empty({1, 16, tokens, 512}, options).requires_grad_(true),
                   k = at::empty({1, 1, tokens, 512}, options).requires_grad_(true),
                   v = at::empty({1, 1, tokens, 512}, options).requires_grad_(true);
  const MetaRecorder recorder(1);
  capped_attention({q, k, v, 1.0, /*causal=*/true, {}}, {0.0, 0, {}}).sum().backward();
  int64_t now = 0, most = 0;
  for (const MetaEvent& event : recorder.events()) most = std::max(most, now += event.bytes);
  return most / tokens;
}

TEST(WideHeads, TakeMemoryThatIsLinearInTheLength) {
  const int64_t few = bytes_by_token(4096), many = bytes_by_token(16384);
  EXPECT_LT(many, few * 11 / 10);
}

}  // namespace
}  // namespace trainer
