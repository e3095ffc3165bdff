// The rotary embedding's kernel, compared with transformers' formula in every layout that occurs.
#include "nn/rotary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/rotate_qk.h"
#include "support/reference.h"
#include "support/reference_ops.h"

namespace trainer {
namespace {

// transformers, modeling_phi3.py: apply_rotary_pos_emb; the tables as there, of all columns that are rotated.
at::Tensor formula(const at::Tensor& x, const Rotary::Tables& tables) {
  const int64_t half = tables.cos.size(-1);
  const at::Tensor x1 = x.slice(-1, 0, half), x2 = x.slice(-1, half, 2 * half);
  const auto whole = [&](const at::Tensor& t) { return at::cat({t, t}, -1).to(x.scalar_type()); };
  const at::Tensor rotated =
      at::cat({x1, x2}, -1) * whole(tables.cos) + at::cat({-x2, x1}, -1) * whole(tables.sin);
  return at::cat({rotated, x.slice(-1, 2 * half)}, -1);
}

Rotary::Tables tables_of(at::ScalarType type, bool of_each_row, int64_t rotary_dim = 16) {
  RopeParameters parameters;
  parameters.rotary_dim = rotary_dim;
  at::Tensor positions = at::arange(7, at::kLong);
  if (of_each_row)
    positions = positions.unsqueeze(0) + at::tensor(std::vector<int64_t>{0, 5, 90}).unsqueeze(1);
  return Rotary(parameters).tables(positions, {7, 7, 7}, at::TensorOptions().dtype(type));
}

class RotaryEmbedding : public testing::TestWithParam<std::tuple<at::ScalarType, bool>> {};

void expect_transformers(at::ScalarType type, const Rotary::Tables& tables) {
  Random random(3);
  const Tensors in{random.normal({3, 4, 7, 16}, type)};
  const at::Tensor weight = random.normal({3, 4, 7, 16}, type);
  const auto both = [&](const Tensors& t) {  // x as queries; its first two heads as keys
    const at::Tensor x = t[0].transpose(1, 2);
    return Rotary::apply(x, x.narrow(2, 0, 2), nullptr, nullptr, tables);
  };
  const Tensors ours = value_and_gradients([&](const Tensors& t) { return both(t).first; }, in, weight, type);
  EXPECT_TRUE(both(in).second.equal(ours[0].narrow(1, 0, 2)));
  const Tensors theirs =
      value_and_gradients([&](const Tensors& t) { return formula(t[0], tables); }, in, weight, type);
  for (size_t i = 0; i < ours.size(); i++) {
    if (type == at::kBFloat16) {
      EXPECT_TRUE(ours[i].equal(theirs[i])) << i;
    } else {
      EXPECT_LE(relative_difference(ours[i], theirs[i]), 1e-7) << i;
    }
  }
}

TEST_P(RotaryEmbedding, ValueAndGradientAreTransformers) {
  const auto [type, of_each_row] = GetParam();
  expect_transformers(type, tables_of(type, of_each_row));
}

TEST_P(RotaryEmbedding, RotatesTheFirstColumnsOfAHead) {
  const auto [type, of_each_row] = GetParam();
  expect_transformers(type, tables_of(type, of_each_row, /*rotary_dim=*/12));
}

TEST_P(RotaryEmbedding, AnyLayoutGivesTheSameBits) {
  const auto [type, of_each_row] = GetParam();
  const Rotary::Tables tables = tables_of(type, of_each_row);
  const at::Tensor x = Random(5).normal({3, 4, 7, 16}, type);
  const at::Tensor expected = rotate(x, tables.cos, tables.sin, false);
  const at::Tensor by_position = x.transpose(1, 2).contiguous().transpose(1, 2);
  EXPECT_TRUE(rotate(by_position, tables.cos, tables.sin, false).equal(expected));
  const at::Tensor by_column = x.transpose(2, 3).contiguous().transpose(2, 3);
  EXPECT_TRUE(rotate(by_column, tables.cos, tables.sin, false).equal(expected));
  const at::Tensor one_for_all = x.narrow(1, 0, 1).expand({3, 4, 7, 16});
  EXPECT_TRUE(rotate(one_for_all, tables.cos, tables.sin, false)
                  .equal(rotate(one_for_all.contiguous(), tables.cos, tables.sin, false)));
}

TEST_P(RotaryEmbedding, WithLibTorchsOperatorsTheSame) {
  const auto [type, of_each_row] = GetParam();
  const at::Tensor x = Random(7).normal({3, 4, 7, 16}, type);
  for (const int64_t rotary_dim : {16, 12}) {
    const Rotary::Tables tables = tables_of(type, of_each_row, rotary_dim);
    for (const bool back : {false, true}) {
      const at::Tensor ours = rotate(x, tables.cos, tables.sin, back);
      const at::Tensor composite = reference::rotate(x, tables.cos, tables.sin, back);
      EXPECT_LE(relative_difference(composite, ours), type == at::kFloat ? 1e-7 : 0.0);
      EXPECT_EQ(composite.strides(), ours.strides());
    }
  }
}

TEST_P(RotaryEmbedding, OnMetaShapesAndStridesAreThoseOfTheCpu) {
  const auto [type, of_each_row] = GetParam();
  const Rotary::Tables tables = tables_of(type, of_each_row);
  const at::Tensor x = Random(9).normal({3, 4, 7, 16}, type), ours = rotate(x, tables.cos, tables.sin, false);
  const at::Tensor meta = rotate(x.to(at::kMeta), tables.cos.to(at::kMeta), tables.sin.to(at::kMeta), false);
  EXPECT_EQ(meta.sizes(), ours.sizes());
  EXPECT_EQ(meta.strides(), ours.strides());
  EXPECT_EQ(meta.scalar_type(), type);
}

TEST_P(RotaryEmbedding, WithNormsHasTheBitsOfNormsAndThenTheRotation) {
  const auto [type, of_each_row] = GetParam();
  const Rotary::Tables tables = tables_of(type, of_each_row);
  Random random(11);
  const Tensors in{random.normal({3, 7, 4, 16}, type), random.normal({3, 7, 2, 16}, type),
                   random.normal({16}, type), random.normal({16}, type)};
  const at::Tensor weight = random.normal({3, 6, 7, 16}, type);
  const auto with_norms = [&](const Tensors& t, const auto& body) {
    RmsNorm q_norm(16, 1e-5), k_norm(16, 1e-5);
    q_norm.weight.value = t[2];
    k_norm.weight.value = t[3];
    const auto [q, k] = body(t, q_norm, k_norm);
    return at::cat({q, k}, 1);
  };
  const auto at_once = [&](const Tensors& t, const RmsNorm& q_norm, const RmsNorm& k_norm) {
    return Rotary::apply(t[0], t[1], &q_norm, &k_norm, tables);
  };
  const auto one_by_one = [&](const Tensors& t, const RmsNorm& q_norm, const RmsNorm& k_norm) {
    return Rotary::apply(q_norm.forward(t[0]), k_norm.forward(t[1]), nullptr, nullptr, tables);
  };
  const Tensors ours =
      value_and_gradients([&](const Tensors& t) { return with_norms(t, at_once); }, in, weight, type);
  const Tensors expected =
      value_and_gradients([&](const Tensors& t) { return with_norms(t, one_by_one); }, in, weight, type);
  for (size_t i = 0; i < ours.size(); i++) EXPECT_TRUE(ours[i].equal(expected[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Cases, RotaryEmbedding,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16), testing::Bool()));

}  // namespace
}  // namespace trainer
