// The norm of the gradients, which clipping divides by.
#include "trainer/optim/gradients.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trainer {
namespace {

TEST(Gradients, TheNormOfALargeTensorIsExactToFp32) {
  at::manual_seed(1);
  // LibTorch's norm in one piece is off by 8e-5 here.
  for (const auto& [type, tolerance] : {std::pair(at::kFloat, 1e-6), std::pair(at::kBFloat16, 1e-5)}) {
    at::Tensor embedding = at::zeros({40000, 100}, type).set_requires_grad(true);
    at::Tensor bias = at::zeros({30}, type).set_requires_grad(true);
    embedding.mutable_grad() = at::randn({40000, 100}).to(type);
    bias.mutable_grad() = at::randn({30}).to(type);
    const Gradients gradients({{"shared.weight", embedding, true}, {"q.bias", bias, false}},
                              StateDtype::automatic);
    double squares = 0;
    for (const at::Tensor& leaf : {embedding, bias}) {
      squares += leaf.grad().to(at::kDouble).square().sum().item<double>();
    }
    const double expected = std::sqrt(squares);
    EXPECT_NEAR(gradients.norm().item<double>(), expected, tolerance * expected) << toString(type);
  }
}

// More elements than are added at a time on the CPU; no multiple of anything.
TEST(Gradients, OfBf16AddUpToTheirSumInFp32) {
  at::manual_seed(2);
  at::Tensor weight = at::zeros({3, 200'003}, at::kBFloat16).set_requires_grad(true);
  const TrainedParameter parameter{"w", weight, true};
  const Gradients gradients({parameter}, StateDtype::fp32);
  at::Tensor expected = at::zeros({3, 200'003});
  for (int micro_batch = 0; micro_batch < 3; micro_batch++) {
    const at::Tensor gradient = at::randn({3, 200'003}).to(at::kBFloat16);
    (weight * gradient).sum().backward();
    expected += gradient.to(at::kFloat);
  }
  EXPECT_EQ(gradients.get(parameter).scalar_type(), at::kFloat);
  EXPECT_TRUE(gradients.get(parameter).equal(expected));
}

}  // namespace
}  // namespace trainer
