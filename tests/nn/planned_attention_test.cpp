// What a plan for a GPU counts for attention, on meta tensors.
#include <algorithm>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "trainer/device/device.h"

#include "device/target_device.h"
#include "memory/meta_memory.h"
#include "nn/attention.h"

namespace trainer {
namespace {

constexpr int64_t kHeads = 8, kTokens = 1024, kHeadDim = 32;

int64_t peak_of(const std::vector<MetaEvent>& events) {
  int64_t live = 0, peak = 0;
  for (const MetaEvent& event : events) peak = std::max(peak, live += event.bytes);
  return peak;
}

// The most that forward and backward need, beyond q, k and v.
int64_t peak_of_attention(int64_t batch, at::ScalarType type, bool deterministic) {
  const PlanningFor planning(c10::kCUDA);
  AttentionInputs in;
  const auto options = at::TensorOptions(type).device(at::kMeta);
  in.q = at::empty({batch, kHeads, kTokens, kHeadDim}, options).set_requires_grad(true);
  in.k = at::empty({batch, 2, kTokens, kHeadDim}, options).set_requires_grad(true);
  in.v = at::empty({batch, 2, kTokens, kHeadDim}, options).set_requires_grad(true);
  in.causal = true;
  const MetaRecorder recorder(512);
  const at::Tensor out = attention(in);
  const Deterministic sums(c10::kCUDA, deterministic);
  torch::autograd::backward({out}, {at::empty_like(out)});
  return peak_of(recorder.events());
}

// An H100 or a B200 keeps 17 to 19 sums for eight heads, and each is as large as q in fp32.
TEST(PlannedAttention, CountsTheSumsThatRepeatabilityNeeds) {
  constexpr int64_t sum = kHeads * kTokens * kHeadDim * 4;
  const int64_t more = peak_of_attention(1, at::kBFloat16, true) - peak_of_attention(1, at::kBFloat16, false);
  EXPECT_GE(more, 16 * sum);
  EXPECT_LE(more, 18 * sum);
  EXPECT_EQ(peak_of_attention(32, at::kBFloat16, true), peak_of_attention(32, at::kBFloat16, false))
      << "with enough heads and samples there is only one";
}

TEST(PlannedAttention, GroupedHeadsInFp32KeepNoMatrixOfScores) {
  EXPECT_LT(peak_of_attention(1, at::kFloat, false), kHeads * kTokens * kTokens * 4 / 2);
}

}  // namespace
}  // namespace trainer
