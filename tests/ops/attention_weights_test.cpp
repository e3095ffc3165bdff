// The pass between attention's two products, compared with LibTorch's operators, and its guarantees.
#include "ops/attention_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/reference.h"
#include "support/reference_ops.h"

namespace trainer {
namespace {

constexpr int64_t kBatch = 3, kHeads = 2, kRows = 6, kKeys = 37;

struct Inputs {
  at::Tensor scores, bias, lengths, row_keys, grad;
  WeightsOptions options;
};

Inputs make_inputs(at::ScalarType type, bool causal, double p) {
  Random random(3);
  Inputs in;
  in.scores = random.normal({kBatch, kHeads, kRows, kKeys}, type) * 3;
  in.bias = random.normal({kHeads, kRows + kKeys - 1}, type);
  in.lengths = at::tensor(std::vector<int64_t>{kKeys, 20, 1});
  in.row_keys = at::arange(kBatch * kRows).view({kBatch, kRows}) * 977;
  in.grad = random.normal({kBatch, kHeads, kRows, kKeys}, type);
  in.options = {0.7, causal ? kKeys - kRows + 1 : kKeys, 99, p};
  return in;
}

at::Tensor run(const Inputs& in) {
  return attention_weights(in.scores, in.bias, in.lengths, in.row_keys, in.options);
}

class AttentionWeights : public testing::TestWithParam<std::tuple<at::ScalarType, bool, double>> {
 protected:
  Inputs inputs() const {
    const auto [type, causal, p] = GetParam();
    return make_inputs(type, causal, p);
  }
  bool bf16() const { return std::get<0>(GetParam()) == at::kBFloat16; }
};

TEST_P(AttentionWeights, AreThoseOfLibTorchsOperators) {
  const Inputs in = inputs();
  const WeightsOptions& o = in.options;
  const at::Tensor ours = run(in);
  const at::Tensor theirs = reference::attention_weights(in.scores, in.bias, in.lengths, in.row_keys, o);
  EXPECT_LE(relative_difference(ours, theirs), bf16() ? 2e-4 : 3e-7);  // bf16: a rounding here and there
  EXPECT_TRUE(ours.eq(0).equal(theirs.eq(0)));
}

TEST_P(AttentionWeights, GradientsAreThoseOfLibTorchsOperators) {
  Inputs in = inputs();
  const WeightsOptions o = in.options;
  in.options.p = 0.0;
  const at::Tensor weights = run(in);
  const auto [g, g_bias] = attention_weights_backward(in.grad, weights, in.row_keys, o, true);
  const auto [g2, g_bias2] = reference::attention_weights_backward(in.grad, weights, in.row_keys, o, true);
  EXPECT_LE(relative_difference(g, g2), bf16() ? 2e-3 : 5e-7);
  EXPECT_LE(relative_difference(g_bias.sum(0), g_bias2.sum(0)), 1e-6);
  EXPECT_FALSE(std::get<1>(attention_weights_backward(in.grad, weights, in.row_keys, o, false)).defined());
}

TEST_P(AttentionWeights, ARowsBitsDoNotDependOnItsCompanyOrPadding) {
  const Inputs in = inputs();
  const at::Tensor all = run(in);
  Inputs one = in;
  one.scores = in.scores.narrow(0, 1, 1).slice(3, 0, 29);
  one.bias = in.bias.narrow(1, 0, kRows + 29 - 1);
  one.lengths = in.lengths.narrow(0, 1, 1);
  one.row_keys = in.row_keys.narrow(0, 1, 1);
  one.options.visible = std::min<int64_t>(in.options.visible, 29);
  EXPECT_TRUE(run(one)[0].slice(2, 0, 20).equal(all[1].slice(2, 0, 20)));
}

TEST_P(AttentionWeights, OnMetaShapesAndTypesAreThoseOfTheCpu) {
  const Inputs in = inputs();
  const auto meta = [](const at::Tensor& t) { return t.to(at::kMeta); };
  const at::Tensor weights =
      attention_weights(meta(in.scores), meta(in.bias), meta(in.lengths), meta(in.row_keys), in.options);
  EXPECT_EQ(weights.sizes(), in.scores.sizes());
  EXPECT_EQ(weights.scalar_type(), in.scores.scalar_type());
  const auto [g, g_bias] =
      attention_weights_backward(meta(in.grad), weights, meta(in.row_keys), in.options, true);
  EXPECT_EQ(g.sizes(), in.scores.sizes());
  EXPECT_EQ(g_bias.sizes(), (std::vector<int64_t>{kBatch, kHeads, kRows + kKeys - 1}));
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionWeights,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16), testing::Bool(),
                                          testing::Values(0.0, 0.25)));

}  // namespace
}  // namespace trainer
