// The program's own products have the values of products in fp64, and bits that depend on nothing else.
#include "gemm/products.h"

#include <algorithm>
#include <map>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "gemm/product_tiles.h"
#include "ops/cpu_products.h"
#include "ops/matmul.h"
#include "support/reference.h"

namespace trainer {
namespace {

struct BuiltinProduct : ::testing::Test {
  void SetUp() override {
    if (!fp32_tiles()) GTEST_SKIP() << "this processor has no AVX2";
    set_cpu_products(CpuProducts::builtin);
  }
  void TearDown() override { set_cpu_products(CpuProducts::automatic); }

  static at::Tensor product_of(const at::Tensor& x, const at::Tensor& y, double scale = 1.0) {
    EXPECT_TRUE(suits_builtin(x, y)) << x.sizes() << " " << y.sizes();
    const at::Tensor out = at::full({x.size(0), y.size(1)}, std::nan(""), at::kFloat);
    add_builtin_products({{out, x, y, scale}});
    return out;
  }

  // The distance from the product in fp64, as a part of its 2-norm.
  static double error_of(const at::Tensor& result, const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor expected = x.to(at::kDouble).mm(y.to(at::kDouble));
    return ((result.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
  }

  Random random{1};
};

// Sides that are no multiple of a tile, a block or a vector, and such as are longer than what is packed at
// once.
TEST_F(BuiltinProduct, HasTheValuesOfTheProductInFp64) {
  const int64_t shapes[][3] = {{8, 1, 8},      {9, 7, 17},      {97, 16, 129},   {100, 321, 48},
                               {513, 64, 300}, {250, 2049, 33}, {1200, 1000, 9}, {31, 4500, 1100}};
  for (const auto& [m, k, n] : shapes) {
    const at::Tensor x = random.normal({m, k}), y = random.normal({k, n});
    const at::Tensor x_columns = x.t().contiguous().t(), y_columns = y.t().contiguous().t();
    for (const at::Tensor& a : {x, x_columns}) {
      for (const at::Tensor& b : {y, y_columns, y.to(at::kBFloat16), y_columns.to(at::kBFloat16)}) {
        EXPECT_LT(error_of(product_of(a, b), a, b), 1e-6) << m << " " << k << " " << n;
      }
    }
  }
}

// Where the processor multiplies bf16: the sums are fp32's, and a bf16 result is one of them, rounded once.
TEST_F(BuiltinProduct, MultipliesBf16WithSumsInFp32) {
  if (!bf16_tiles()) GTEST_SKIP() << "this processor does not multiply bf16 faster than fp32";
  const int64_t shapes[][3] = {{8, 1, 8},       {9, 7, 17},     {97, 16, 129},   {100, 321, 48},
                               {513, 64, 300},  {250, 193, 4},  {1200, 1000, 9}, {31, 4099, 70},
                               {300, 8200, 40}, {40000, 70, 40}};
  for (const auto& [m, k, n] : shapes) {
    const int64_t columns = std::max<int64_t>(n, 8);
    const at::Tensor x = random.normal({m, k}).to(at::kBFloat16),
                     y = random.normal({k, columns}).to(at::kBFloat16);
    for (const at::Tensor& a : {x, x.t().contiguous().t()}) {
      for (const at::Tensor& b : {y, y.t().contiguous().t()}) {
        EXPECT_LT(error_of(product_of(a, b), a, b), 1e-6) << m << " " << k << " " << columns;
        const at::Tensor rounded = at::full({m, columns}, std::nan(""), x.options());
        add_builtin_products({{rounded, a, b}});
        EXPECT_TRUE(at::equal(rounded, product_of(a, b).to(at::kBFloat16)))
            << m << " " << k << " " << columns;
      }
    }
  }
}

TEST_F(BuiltinProduct, AddsToABf16SumAndRoundsAfterEachProduct) {
  if (!bf16_tiles()) GTEST_SKIP() << "this processor does not multiply bf16 faster than fp32";
  for (const int64_t depth : {200, 5000}) {  // the second is multiplied in parts
    const auto bf16 = [&](int64_t rows, int64_t columns) {
      return random.normal({rows, columns}).to(at::kBFloat16);
    };
    const at::Tensor x = bf16(70, depth), y = bf16(depth, 40), low = bf16(70, 16), b = bf16(16, 40);
    const at::Tensor before = bf16(70, 40), sum = before.clone();
    add_builtin_products({{sum, x, y, 1.0, /*begun=*/true}, {sum, low, b, 0.3, /*begun=*/true}});
    at::Tensor wide = before.to(at::kFloat);
    add_builtin_products({{wide, x, y, 1.0, /*begun=*/true}});
    wide = wide.to(at::kBFloat16).to(at::kFloat);
    add_builtin_products({{wide, low, b, 0.3, /*begun=*/true}});
    EXPECT_TRUE(at::equal(sum, wide.to(at::kBFloat16))) << depth;
  }
}

TEST_F(BuiltinProduct, ReadsAndWritesPartsOfLargerMatrices) {
  const at::Tensor x = random.normal({50, 400}).narrow(1, 3, 300),
                   y = random.normal({500, 90}).narrow(0, 7, 300).narrow(1, 5, 70);
  const at::Tensor whole = at::ones({60, 100}), part = whole.narrow(0, 4, 50).narrow(1, 9, 70);
  add_builtin_products({{part, x, y}});
  EXPECT_LT(error_of(part, x, y), 1e-6);
  part.fill_(1);
  EXPECT_TRUE(at::equal(whole, at::ones({60, 100}))) << "nothing else was written";
}

TEST_F(BuiltinProduct, AddsToASumTimesAScale) {
  const at::Tensor x = random.normal({70, 2100}), y = random.normal({2100, 40});
  at::Tensor sum = random.normal({70, 40});
  const at::Tensor expected = sum.to(at::kDouble) + 0.25 * x.to(at::kDouble).mm(y.to(at::kDouble));
  add_builtin_products({{sum, x, y, 0.25, /*begun=*/true}});
  EXPECT_LT(((sum.to(at::kDouble) - expected).norm() / expected.norm()).item<double>(), 1e-6);
}

// A sample has the same numbers whatever shares its micro-batch, on any number of threads.
TEST_F(BuiltinProduct, HasTheSameBitsWhateverTheOtherRowsAndTheThreads) {
  const at::Tensor x = random.normal({700, 600}), y = random.normal({600, 500});
  const at::Tensor all = product_of(x, y);
  EXPECT_TRUE(at::equal(product_of(x.narrow(0, 101, 50), y), all.narrow(0, 101, 50)));
  EXPECT_TRUE(at::equal(product_of(x, y.narrow(1, 33, 77)), all.narrow(1, 33, 77)));
  // Also where it is scaled and added, in whole tiles and at their edges.
  at::Tensor sum = random.normal({700, 500}), part = sum.narrow(0, 101, 50).narrow(1, 33, 77).clone();
  add_builtin_products({{sum, x, y, 0.3, /*begun=*/true}});
  add_builtin_products({{part, x.narrow(0, 101, 50), y.narrow(1, 33, 77), 0.3, /*begun=*/true}});
  EXPECT_TRUE(at::equal(part, sum.narrow(0, 101, 50).narrow(1, 33, 77)));
  const int threads = at::get_num_threads();
  for (const int other : {1, 3}) {
    at::set_num_threads(other);
    EXPECT_TRUE(at::equal(product_of(x, y), all)) << other << " threads";
  }
  at::set_num_threads(threads);
}

// Those of a layer's backward: they share operands, add to one sum, and have shapes of several kinds.
std::vector<SummedProduct> several(Random& random, int64_t rows, int64_t inputs, int64_t outputs,
                                   at::ScalarType type) {
  const at::Tensor x = random.normal({rows, inputs}, type), g = random.normal({rows, outputs}, type),
                   h = random.normal({rows, outputs}, type), w = random.normal({outputs, inputs}, type),
                   b = random.normal({outputs, 9}, type), gx = random.normal({rows, inputs}, type);
  const auto fresh = [&](int64_t m, int64_t n) { return at::full({m, n}, std::nan(""), type); };
  return {{gx, g, w, 1.0, /*begun=*/true},
          {fresh(rows, 9), g, b, 0.5},
          {gx, h, w, 1.0, /*begun=*/true},
          {fresh(outputs, inputs), g.t(), x},
          {gx, x.narrow(1, 0, 9), w.narrow(0, 0, 9), 0.7, /*begun=*/true},
          {fresh(rows, 9), h, b, 0.25},
          {fresh(rows, outputs), x, w.to(at::kBFloat16).t()}};
}

// Operands that fit into what is packed at once, and such that do not: together, or each alone.
TEST_F(BuiltinProduct, HasTheSameBitsTogetherWithOthersAsAlone) {
  std::vector<at::ScalarType> types{at::kFloat};
  if (bf16_tiles()) types.push_back(at::kBFloat16);
  const int64_t shapes[][3] = {
      {50, 64, 96}, {333, 600, 700}, {200, 576, 1536}, {1500, 700, 1100}, {40, 2100, 4500}};
  for (size_t shape = 0; shape < std::size(shapes) * types.size(); shape++) {
    const auto& [rows, inputs, outputs] = shapes[shape / types.size()];
    const std::vector<SummedProduct> together =
        several(random, rows, inputs, outputs, types[shape % types.size()]);
    std::vector<SummedProduct> alone = together;
    std::map<const void*, at::Tensor> copies;
    for (SummedProduct& product : alone) {
      at::Tensor& copy = copies[product.sum.const_data_ptr()];
      if (!copy.defined()) copy = product.sum.clone();
      product.sum = copy;
    }
    for (const SummedProduct& product : alone) add_builtin_products({product});
    add_builtin_products(together);
    for (size_t i = 0; i < together.size(); i++) {
      EXPECT_TRUE(at::equal(together[i].sum, alone[i].sum))
          << rows << " " << inputs << " " << outputs << ": " << i;
    }
  }
}

TEST_F(BuiltinProduct, IsNotChosenWhereItCannotServe) {
  const at::Tensor x = random.normal({64, 64}), y = random.normal({64, 64});
  EXPECT_TRUE(suits_builtin(x, y));
  EXPECT_FALSE(suits_builtin(x.to(at::kBFloat16), y));
  EXPECT_EQ(suits_builtin(x.to(at::kBFloat16), y.to(at::kBFloat16)), bf16_tiles() != nullptr);
  EXPECT_FALSE(suits_builtin(x, y.to(at::kDouble)));
  EXPECT_FALSE(suits_builtin(x.narrow(0, 0, 7), y));
  EXPECT_FALSE(suits_builtin(x, y.unfold(1, 1, 2).squeeze(2))) << "no dimension is contiguous";
  EXPECT_FALSE(suits_builtin(x.clone().set_requires_grad(true), y));
  set_cpu_products(CpuProducts::mkl);
  EXPECT_FALSE(suits_builtin(x, y));
}

TEST_F(BuiltinProduct, IsChosenByTypeForBf16WithAmx) {
  const at::Tensor x = random.normal({64, 64}), bf16 = x.to(at::kBFloat16);
  set_cpu_products(CpuProducts::by_type);
  EXPECT_FALSE(suits_builtin(x, x)) << "that is MKL's";
  EXPECT_EQ(suits_builtin(bf16, bf16), tiles_of_amx_bf16() != nullptr);
}

// The products that layers ask for, with weights in either type.
TEST_F(BuiltinProduct, ServesTheProductsOfWeights) {
  const at::Tensor x = random.normal({120, 96}), g = random.normal({120, 200}), w = random.normal({200, 96});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor weight = w.to(type);
    EXPECT_LT(error_of(times_transposed(x, weight), x, weight.t()), 1e-6);
    at::Tensor sum = times(g, weight);
    EXPECT_LT(error_of(sum, g, weight), 1e-6);
    times_into(sum, g, weight);
    EXPECT_LT(error_of(sum, g, 2 * weight), 1e-6);
  }
  EXPECT_LT(error_of(product(g.t(), x), g.t(), x), 1e-6);
}

}  // namespace
}  // namespace trainer
