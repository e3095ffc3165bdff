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

}  // namespace
}  // namespace trainer
