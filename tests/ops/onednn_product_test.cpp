// Products by oneDNN have the values of products in fp64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gemm/product_tiles.h"
#include "ops/cpu_products.h"
#include "ops/cpu_products_are.h"
#include "ops/matmul.h"
#include "support/reference.h"

namespace trainer {
namespace {

// The distance from the product in fp64, as a part of its 2-norm.
double error_of(const at::Tensor& product, const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor expected = x.to(at::kDouble).mm(y.to(at::kDouble));
  return ((product.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

TEST(OnednnProduct, HasTheValuesOfTheProductInFp64) {
  Random random(1);
  const int64_t shapes[][3] = {{128, 128, 128}, {300, 517, 130}, {129, 1024, 1000}};
  for (const auto& [m, k, n] : shapes) {
    const at::Tensor x = random.normal({m, k}), y = random.normal({k, n}), w = random.normal({n, k});
    EXPECT_LT(error_of(onednn_product(x, y), x, y), 1e-6);
    EXPECT_LT(error_of(onednn_product(x, w.t()), x, w.t()), 1e-6);
    const at::Tensor part = x.narrow(0, 1, m - 1);
    EXPECT_LT(error_of(onednn_product(part, y), part, y), 1e-6);
  }
}

TEST(OnednnProduct, GivesTheSameBitsAgain) {
  Random random(2);
  const at::Tensor x = random.normal({257, 384}), w = random.normal({512, 384});
  const at::Tensor first = onednn_product(x, w.t());
  for (int i = 0; i < 5; i++) EXPECT_TRUE(at::equal(onednn_product(x.clone(), w.clone().t()), first));
}

// The operator has no gradient and no other types, and small products are faster with MKL.
TEST(OnednnProduct, IsNotChosenWhereItCannotServe) {
  const CpuProductsAre set(CpuProducts::onednn);
  Random random(3);
  const at::Tensor x = random.normal({256, 256}), y = random.normal({256, 256});
  EXPECT_FALSE(suits_onednn(x.to(at::kBFloat16), y.to(at::kBFloat16)));
  EXPECT_FALSE(suits_onednn(x.to(at::kMeta), y.to(at::kMeta)));
  EXPECT_FALSE(suits_onednn(x.t(), y));
  EXPECT_FALSE(suits_onednn(x, y.narrow(1, 0, 16)));
  EXPECT_FALSE(suits_onednn(x.clone().set_requires_grad(true), y));
}

// By whatever library: products of weights keep their gradients where these are recorded.
TEST(OnednnProduct, ProductsOfWeightsAreDifferentiable) {
  const CpuProductsAre set(CpuProducts::onednn);
  Random random(4);
  const at::Tensor x = random.normal({200, 256}).set_requires_grad(true), w = random.normal({300, 256});
  times_transposed(x, w).sum().backward();
  const at::Tensor expected = w.to(at::kDouble).sum(0).expand({200, 256});
  EXPECT_LT(((x.grad() - expected).norm() / expected.norm()).item<double>(), 1e-6);
}

TEST(OnednnProduct, ProductsOfWeightsHaveTheValuesOfTheProductInFp64) {
  const CpuProductsAre set(CpuProducts::onednn);
  Random random(5);
  const at::Tensor x = random.normal({333, 256}), w = random.normal({400, 256}),
                   g = random.normal({333, 400});
  EXPECT_LT(error_of(times_transposed(x, w), x, w.t()), 1e-6);
  EXPECT_LT(error_of(times(g, w), g, w), 1e-6);
  at::Tensor sum = times(g, w);
  times_into(sum, g, w);
  EXPECT_LT(error_of(sum, g, 2 * w), 1e-6);
}

TEST(CpuProductsSetting, EachGivesTheProductInFp64ToTheRoundingOfItsType) {
  Random random(6);
  const at::Tensor x = random.normal({256, 320}), w = random.normal({384, 320});
  const at::Tensor bf16_x = x.to(at::kBFloat16), bf16_w = w.to(at::kBFloat16);
  for (const CpuProducts wanted :
       {CpuProducts::mkl, CpuProducts::onednn, CpuProducts::by_type, CpuProducts::builtin}) {
    const CpuProductsAre set(wanted);
    if (wanted == CpuProducts::builtin && !fp32_tiles()) {
      EXPECT_EQ(cpu_products(), CpuProducts::mkl);
      continue;
    }
    EXPECT_EQ(cpu_products(), wanted);
    EXPECT_EQ(suits_onednn(x, w.t()), wanted == CpuProducts::onednn);
    EXPECT_EQ(product_type(bf16_x), widens_bf16() ? at::kFloat : at::kBFloat16);
    EXPECT_EQ(widens_bf16(), wanted == CpuProducts::mkl || (wanted == CpuProducts::builtin && !bf16_tiles()));
    EXPECT_LT(error_of(times_transposed(x, w), x, w.t()), 1e-6);
    const at::Tensor product = times_transposed(for_products(bf16_x), bf16_w);
    EXPECT_LT(error_of(product.to(at::kBFloat16), bf16_x, bf16_w.t()), 3e-3);
  }
  EXPECT_NE(cpu_products(), CpuProducts::automatic) << "automatic is one of them";
}

}  // namespace
}  // namespace trainer
