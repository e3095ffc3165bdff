// act(gate) * up: the kernel, compared with LibTorch's activations.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/activation.h"
#include "support/reference.h"
#include "support/reference_ops.h"

namespace trainer {
namespace {

class GatedActivation : public testing::TestWithParam<Activation> {
 protected:
  at::Tensor ours(const Tensors& in) const { return gated_activation(GetParam(), in[0], in[1]); }
  at::Tensor composed(const Tensors& in) const { return activate(GetParam(), in[0]) * in[1]; }
  Tensors run(bool own, const Tensors& in, const at::Tensor& weight, at::ScalarType type) const {
    return value_and_gradients([&](const Tensors& t) { return own ? ours(t) : composed(t); }, in, weight,
                               type);
  }
  int64_t kind() const { return static_cast<int64_t>(GetParam()); }
};

TEST_P(GatedActivation, ValueAndGradientsAreTheDefinitions) {
  Random random(3);
  for (const double scale : {0.01, 1.0, 4.0}) {
    const Tensors in{random.normal({37, 129}) * scale, random.normal({37, 129})};
    const at::Tensor weight = random.normal({37, 129});
    const Tensors exact = run(false, in, weight, at::kDouble), own = run(true, in, weight, at::kFloat);
    const Tensors theirs = run(false, in, weight, at::kFloat);
    for (size_t i = 0; i < own.size(); i++) {
      const double error = relative_difference(theirs[i], exact[i]);
      EXPECT_LE(relative_difference(own[i], exact[i]), std::max(1.5 * error, 2e-7)) << scale << " " << i;
    }
  }
}

TEST_P(GatedActivation, FarOutItStaysTheLimit) {
  const at::Tensor gate =
      at::tensor({-1e30f, -200.0f, -100.0f, -14.0f, -0.0f, 0.0f, 14.0f, 100.0f, 200.0f, 1e30f});
  const Tensors in{gate, at::ones_like(gate)};
  const at::Tensor weight = at::ones_like(gate);
  const Tensors exact = run(false, in, weight, at::kDouble), own = run(true, in, weight, at::kFloat);
  for (size_t i = 0; i < own.size(); i++) {
    // where the limit is 0, next to nothing in proportion to the argument
    const at::Tensor allowed = exact[i].abs() * 1e-6 + gate.abs() * 1e-37 + 1e-30;
    EXPECT_TRUE((own[i] - exact[i]).abs().le(allowed).all().item<bool>()) << i << own[i] << exact[i];
  }
  const at::Tensor nan = gated_activation(GetParam(), at::full({20}, NAN), at::ones({20}));
  EXPECT_TRUE(nan.isnan().all().item<bool>());
}

TEST_P(GatedActivation, InBf16ValuesAreTransformersAndGradientsNoFurtherFromTheDefinition) {
  Random random(5);
  const Tensors in{random.normal({64, 512}, at::kBFloat16) * 2, random.normal({64, 512}, at::kBFloat16)};
  const at::Tensor weight = random.normal({64, 512}, at::kBFloat16);
  const Tensors own = run(true, in, weight, at::kBFloat16), theirs = run(false, in, weight, at::kBFloat16);
  const Tensors exact = run(false, in, weight, at::kDouble);
  // Left of -1, 1 + erf and 1 + tanh have lost digits, so LibTorch's own values are some off there.
  const at::Tensor different = own[0].ne(theirs[0]).logical_and_(in[0].gt(-1));
  EXPECT_LE(different.sum().item<int64_t>(), 32768 / 1000);  // values at the border of a rounding
  for (size_t i = 0; i < own.size(); i++) {
    EXPECT_LE(relative_difference(own[i], exact[i]), 1.01 * relative_difference(theirs[i], exact[i])) << i;
  }
}

TEST_P(GatedActivation, AnElementsBitsDoNotDependOnItsPlace) {
  Random random(7);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor gate = random.normal({40007}, type), up = random.normal({40007}, type),
                     g = random.normal({40007}, type);
    const at::Tensor whole = gated_apply(gate, up, kind());
    const auto [whole_gate, whole_up] = gated_backward(g, gate, up, kind());
    for (const int64_t first : {1, 16001, 39990}) {
      const auto part = [&](const at::Tensor& t) { return t.narrow(0, first, 17); };
      EXPECT_TRUE(gated_apply(part(gate), part(up), kind()).equal(part(whole)));
      const auto [part_gate, part_up] = gated_backward(part(g), part(gate), part(up), kind());
      EXPECT_TRUE(part_gate.equal(part(whole_gate)));
      EXPECT_TRUE(part_up.equal(part(whole_up)));
    }
  }
}

TEST_P(GatedActivation, TakesTensorsThatAreNotContiguous) {
  Random random(9);
  const at::Tensor gate = random.normal({8, 6}).t(), up = random.normal({6, 16}).slice(1, 0, 16, 2);
  const at::Tensor g = random.normal({6}).unsqueeze(1).expand({6, 8});
  EXPECT_TRUE(gated_apply(gate, up, kind()).equal(gated_apply(gate.contiguous(), up.contiguous(), kind())));
  const auto [a, b] = gated_backward(g, gate, up, kind());
  const auto [c, d] = gated_backward(g.contiguous(), gate.contiguous(), up.contiguous(), kind());
  EXPECT_TRUE(a.equal(c));
  EXPECT_TRUE(b.equal(d));
}

TEST_P(GatedActivation, WithLibTorchsOperatorsTheSame) {
  Random random(11);
  const at::Tensor gate = random.normal({9, 33}), up = random.normal({9, 33}), g = random.normal({9, 33});
  EXPECT_LE(relative_difference(reference::gated(gate, up, kind()), gated_apply(gate, up, kind())), 3e-7);
  const auto [a, b] = gated_backward(g, gate, up, kind());
  at::Tensor d = at::empty_like(up);
  const at::Tensor c = reference::gated_backward(g, gate, up, kind(), d);
  EXPECT_LE(relative_difference(c, a), 3e-7);
  EXPECT_LE(relative_difference(d, b), 3e-7);
}

TEST_P(GatedActivation, AGradientGivenAwayMakesRoomForAnother) {
  Random random(13);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor gate = random.normal({70, 33}, type), up = random.normal({70, 33}, type),
                     g = random.normal({70, 33}, type);
    const auto [a, b] = gated_backward(g, gate, up, kind());
    at::Tensor given = g.clone();
    const void* memory = given.const_data_ptr();
    const auto [c, d] = gated_backward(std::move(given), gate, up, kind());
    EXPECT_EQ(d.const_data_ptr(), memory);
    EXPECT_TRUE(c.equal(a));
    EXPECT_TRUE(d.equal(b));
    given = g.clone().view({33, 70}).view({70, 33});
    memory = given.const_data_ptr();
    EXPECT_EQ(std::get<1>(gated_backward(std::move(given), gate, up, kind())).const_data_ptr(), memory);
    given = g.clone();
    const at::Tensor held = given.view({33, 70});
    const auto [e, f] = gated_backward(std::move(given), gate, up, kind());
    EXPECT_TRUE(held.equal(g.view({33, 70})));
    EXPECT_TRUE(f.equal(b));
  }
}

TEST_P(GatedActivation, OnMetaShapesAndTypesAreThoseOfTheCpu) {
  const at::Tensor gate = at::empty({4, 6}, at::TensorOptions(at::kMeta).dtype(at::kBFloat16));
  EXPECT_EQ(gated_apply(gate, gate, kind()).sizes(), gate.sizes());
  const auto [a, b] = gated_backward(gate, gate, gate, kind());
  EXPECT_EQ(a.sizes(), gate.sizes());
  EXPECT_EQ(b.scalar_type(), at::kBFloat16);
}

INSTANTIATE_TEST_SUITE_P(Kinds, GatedActivation,
                         testing::Values(Activation::silu, Activation::gelu, Activation::gelu_tanh,
                                         Activation::relu));

TEST(GatedActivationOfOtherKinds, IsTheProduct) {
  Random random(13);
  const at::Tensor gate = random.normal({5, 7}), up = random.normal({5, 7});
  EXPECT_TRUE(gated_activation(Activation::mish, gate, up).equal(at::mish(gate) * up));
}

}  // namespace
}  // namespace trainer
