// Every kind of tiles that this processor can compute, also those that it does not choose, gives the products
// of fp64.
#include "nn/product_tiles.h"

#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/product_round.h"
#include "nn/reference.h"

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

// Every number of rows and columns that a tile may have less than whole, and both layouts of either operand.
TEST_P(EveryKindOfTiles, AddsTheProductInFp64AndNothingBeside) {
  for (int64_t rows = 1; rows <= 2 * tiles->rows; rows++) {
    const int64_t columns = 1 + rows * 37 % (tiles->columns + 5), depth = 1 + rows * 29 % 400;
    const at::Tensor x = random.normal({rows, depth}).to(type()),
                     y = random.normal({depth, columns}).to(type());
    const at::Tensor all = random.normal({rows + 2, columns + 3});
    const at::Tensor before = all.clone(), sum = all.narrow(0, 1, rows).narrow(1, 1, columns);
    const at::Tensor expected = sum.to(at::kDouble) + 0.5 * x.to(at::kDouble).mm(y.to(at::kDouble));
    for (const at::Tensor& a : {x, x.t().contiguous().t()}) {
      for (const at::Tensor& b : {y, y.t().contiguous().t()}) {
        all.copy_(before);
        ProductRound round;
        round.add({sum.mutable_data_ptr(), /*bf16=*/false, sum.stride(0), rows, columns},
                  operand(a, OperandSide::x), operand(b, OperandSide::y), 0.5F, /*begun=*/true);
        round.run();
        const double error = ((sum.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
        EXPECT_LT(error, 1e-6) << rows << " " << depth << " " << columns;
        sum.copy_(before.narrow(0, 1, rows).narrow(1, 1, columns));
        EXPECT_TRUE(at::equal(all, before)) << "nothing else was written: " << rows << " " << columns;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryKindOfTiles,
                         ::testing::Values(Kind{"AVX2", tiles_of_avx2}, Kind{"AVX512", tiles_of_avx512},
                                           Kind{"AVX512_BF16", tiles_of_avx512_bf16}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trainer
