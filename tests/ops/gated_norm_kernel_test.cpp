// The kernels of the gated norm, run on the CPU (support/emulated_gpu.h), compared with the definition in
// fp64 and with the two operators that a CPU composes it of.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/norm.h"
#include "ops/activation.h"
#include "ops/emulated_kernels.h"
#include "ops/gated_norm_given.h"
#include "support/planned_bytes.h"

namespace trainer {
namespace {

// Of the two operators that a CPU composes it of.
Tensors composed(const GatedNormGiven& given) {
  RmsNorm norm(given.weight.size(0), GatedNormGiven::kEpsilon);
  Tensors leaves;
  for (const at::Tensor& t : given.in()) leaves.push_back(t.detach().set_requires_grad(true));
  norm.weight.value = leaves[2];
  const at::Tensor normed = norm.forward(given.by_head(leaves[0]));
  const at::Tensor y = gated_activation(Activation::silu, given.by_head(leaves[1]), normed).flatten(2);
  Tensors all = torch::autograd::grad({y}, leaves, {given.g});
  all.insert(all.begin(), y.detach());
  return all;
}

class GatedNormKernels : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  EmulatedGpu gpu_;
};

TEST_P(GatedNormKernels, AreThoseOfTheDefinitionAndOfTwoOperators) {
  const bool fp32 = GetParam() == at::kFloat;
  for (const auto& [heads, size] : kHeadsOfGatedNorms) {
    const GatedNormGiven given(heads, size, GetParam());
    const Tensors ours =
                      as_on_a_gpu([&] { return given.by_operator([](const at::Tensor& t) { return t; }); }),
                  two = composed(given);
    const Tensors exact = value_and_gradients([&](const Tensors& t) { return given.definition(t); },
                                              given.in(), given.g, at::kDouble);
    for (size_t i = 0; i < ours.size(); i++) {
      EXPECT_EQ(ours[i].sizes(), exact[i].sizes()) << i;
      EXPECT_LE(relative_difference(ours[i], exact[i]), fp32 ? 2e-6 : 5e-3) << i << " of " << size;
      EXPECT_LE(relative_difference(ours[i], two[i]), fp32 ? 1e-6 : 5e-4) << i << " of " << size;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GatedNormKernels, ::testing::Values(at::kFloat, at::kBFloat16));

// With a frozen weight: the result and a number a head; then both gradients.
TEST(GatedNorm, AllocatesNoMoreThanItsResults) {
  const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
  const PlanningFor planning(c10::kCUDA);
  const at::Tensor weight = at::empty({128}, options);
  const at::Tensor x = at::empty({1, 64, 512}, options).set_requires_grad(true),
                   gate = at::empty({1, 64, 512}, options).set_requires_grad(true);
  constexpr int64_t bytes = 64 * 512 * 2;
  at::Tensor y;
  EXPECT_EQ(planned([&] { y = gated_norm(x, gate, weight, GatedNormGiven::kEpsilon); }),
            (std::vector<int64_t>{bytes, 64 * 4 * 4}));
  const at::Tensor g = at::empty({1, 64, 512}, options);
  EXPECT_EQ(planned([&] {
              torch::autograd::grad({y}, {x, gate}, {g});
            }),
            (std::vector<int64_t>{bytes, bytes}));
}

}  // namespace
}  // namespace trainer
