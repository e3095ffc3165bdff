// Every kind of tiles that this processor can compute, also those that it does not choose, gives the products
// of fp64.
#include "gemm/product_tiles.h"

#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gemm/product_round.h"
#include "support/reference.h"

namespace trainer {
namespace {

struct Kind {
  std::string name;
  const ProductTiles* (*tiles)();
};

struct EveryKindOfTiles : ::testing::TestWithParam<Kind> {
  const ProductTiles* const tiles = GetParam().tiles();

  void SetUp() override {
    if (!tiles) GTEST_SKIP() << "this processor has no " << GetParam().name;
  }
  at::ScalarType type() const { return tiles->bf16 ? at::kBFloat16 : at::kFloat; }
  ProductOperand operand(const at::Tensor& matrix, OperandSide side) const {
    const int64_t lines = side == OperandSide::x ? 0 : 1;
    return {matrix.const_data_ptr(),
            matrix.scalar_type() == at::kBFloat16,
            matrix.stride(lines),
            matrix.stride(1 - lines),
            matrix.size(lines),
            matrix.size(1 - lines),
            side,
            tiles};
  }

  Random random{2};
};

// Whole tiles and parts of them, side by side: every number of columns and rows, both layouts of either
// operand, added and not.
TEST_P(EveryKindOfTiles, AddsTheProductInFp64AndNothingBeside) {
  for (int64_t columns = 1; columns <= 2 * tiles->columns; columns++) {
    const int64_t rows = 1 + columns * 5 % (2 * tiles->rows), depth = 1 + columns * 29 % 400;
    const at::Tensor x = random.normal({rows, depth}).to(type()),
                     y = random.normal({depth, columns}).to(type());
    const at::Tensor all = random.normal({rows + 2, columns + 3}), before = all.clone();
    const at::Tensor sum = all.narrow(0, 1, rows).narrow(1, 1, columns), old = sum.clone();
    const at::Tensor product = 0.7 * x.to(at::kDouble).mm(y.to(at::kDouble));
    for (const at::Tensor& a : {x, x.t().contiguous().t()}) {
      for (const at::Tensor& b : {y, y.t().contiguous().t()}) {
        for (const bool begun : {false, true}) {
          ProductRound round;
          round.add({sum.mutable_data_ptr(), /*bf16=*/false, sum.stride(0), rows, columns},
                    operand(a, OperandSide::x), operand(b, OperandSide::y), 0.7F, begun);
          round.run();
          const at::Tensor expected = begun ? product + old : product;
          const double error = ((sum - expected).norm() / expected.norm()).item<double>();
          EXPECT_LT(error, 1e-6) << rows << " " << depth << " " << columns;
          sum.copy_(old);
          EXPECT_TRUE(at::equal(all, before)) << "nothing else was written: " << rows << " " << columns;
        }
      }
    }
  }
}

struct TilesOfBf16 : EveryKindOfTiles {};

// A bf16 sum is that in fp32, rounded once; in few words and in so many that they are multiplied in parts.
TEST_P(TilesOfBf16, RoundTheSumInFp32AndWriteNothingBeside) {
  for (int64_t columns = 1; columns <= 2 * tiles->columns; columns++) {
    const int64_t rows = 1 + columns * 5 % (2 * tiles->rows), depth = 1 + columns * 97 % 1000;
    const at::Tensor x = random.normal({rows, depth}).to(type()),
                     y = random.normal({depth, columns}).to(type());
    const at::Tensor all = random.normal({rows + 2, columns + 3}).to(at::kBFloat16), before = all.clone();
    const at::Tensor sum = all.narrow(0, 1, rows).narrow(1, 1, columns), old = sum.clone();
    for (const bool begun : {false, true}) {
      const at::Tensor wide = old.to(at::kFloat).contiguous();
      for (const at::Tensor& to : {wide, sum}) {
        ProductRound round;
        round.add({to.mutable_data_ptr(), to.scalar_type() == at::kBFloat16, to.stride(0), rows, columns},
                  operand(x, OperandSide::x), operand(y, OperandSide::y), 0.7F, begun);
        round.run();
      }
      EXPECT_TRUE(at::equal(sum, wide.to(at::kBFloat16))) << rows << " " << depth << " " << columns;
      sum.copy_(old);
      EXPECT_TRUE(at::equal(all, before)) << "nothing else was written: " << rows << " " << columns;
    }
  }
}

std::string kind_of(const ::testing::TestParamInfo<Kind>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Kinds, EveryKindOfTiles,
                         ::testing::Values(Kind{"AVX2", tiles_of_avx2}, Kind{"AVX512", tiles_of_avx512},
                                           Kind{"AVX512_BF16", tiles_of_avx512_bf16},
                                           Kind{"AMX_BF16", tiles_of_amx_bf16}),
                         kind_of);
INSTANTIATE_TEST_SUITE_P(Kinds, TilesOfBf16,
                         ::testing::Values(Kind{"AVX512_BF16", tiles_of_avx512_bf16},
                                           Kind{"AMX_BF16", tiles_of_amx_bf16}),
                         kind_of);

}  // namespace
}  // namespace trainer
