// Products of few rows have the values of products in fp64, and bits that depend on nothing else.
#include "gemm/few_rows.h"

#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "gemm/few_rows_loops.h"
#include "support/reference.h"

namespace trainer {
namespace {

struct FewRowsProducts : ::testing::Test {
  void SetUp() override {
    if (!few_rows_loops()) GTEST_SKIP() << "this processor has no AVX2";
  }

  static at::Tensor product_of(const at::Tensor& x, const at::Tensor& w, double scale = 1.0) {
    EXPECT_TRUE(can_multiply_few_rows(x, w.scalar_type()));
    const at::Tensor out = at::full({x.size(0), w.size(0)}, std::nan(""), x.options());
    few_rows_products({{out, x, w, {}, scale}});
    return out;
  }
  // The distance from the product in fp64, as a part of its 2-norm.
  static double error_of(const at::Tensor& result, const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor expected = x.to(at::kDouble).mm(w.to(at::kDouble).t());
    return ((result.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
  }

  at::NoGradGuard no_grad;
  Random random{1};
};

// Sides that are no multiple of a tile, a task or a vector.
const std::vector<std::vector<int64_t>> kShapes{{1, 1, 1},    {1, 576, 1000}, {2, 33, 25},
                                                {3, 64, 23},  {5, 100, 300},  {8, 1536, 7},
                                                {13, 40, 49}, {33, 17, 64},   {64, 2000, 97}};

TEST_F(FewRowsProducts, HaveTheValuesOfProductsInFp64) {
  for (const auto& shape : kShapes) {
    const at::Tensor x = random.normal({shape[0], shape[1]}), w = random.normal({shape[2], shape[1]});
    EXPECT_LT(error_of(product_of(x, w), x, w), 1e-6) << shape;
    const at::Tensor narrow = w.to(at::kBFloat16), rounded = x.to(at::kBFloat16);
    EXPECT_LT(error_of(product_of(x, narrow), x, narrow), 1e-6) << shape;  // bf16 widened
    // A result in bf16 is rounded once: at most half a unit of its last place, 2^-9.
    EXPECT_LT(error_of(product_of(rounded, narrow), rounded, narrow), 0x1p-9) << shape;
  }
}

TEST_F(FewRowsProducts, AreAddedToWhatIsThere) {
  const at::Tensor x = random.normal({5, 48}), w = random.normal({70, 48}), sum = random.normal({5, 70});
  const at::Tensor expected = sum + 0.5 * x.mm(w.t());
  few_rows_products({{sum, x, w, {}, 0.5, /*begun=*/true}});
  EXPECT_TRUE(at::allclose(sum, expected, 1e-5, 1e-5));
}

// So an answer does not depend on the others of its batch.
TEST_F(FewRowsProducts, HaveTheSameBitsWhateverTheOtherRowsAre) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const auto& shape : kShapes) {
      const at::Tensor x = random.normal({40, shape[1]}).to(type),
                       w = random.normal({shape[2], shape[1]}).to(type);
      const at::Tensor together = product_of(x, w);
      for (const int64_t rows : {1, 2, 3, 4, 7, 8, 12, 31}) {
        const at::Tensor some = product_of(x.narrow(0, 40 - rows, rows), w);
        EXPECT_TRUE(some.equal(together.narrow(0, 40 - rows, rows))) << type << " " << shape << " " << rows;
      }
    }
  }
}

TEST_F(FewRowsProducts, HaveTheSameBitsWithAnyNumberOfThreads) {
  const at::Tensor x = random.normal({8, 576}), w = random.normal({1536, 576});
  const at::Tensor expected = product_of(x, w);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_TRUE(product_of(x, w).equal(expected));
  at::set_num_threads(before);
}

// A weight that is made by panels: what is multiplied is what the panel gives, whoever asks for it.
TEST_F(FewRowsProducts, TakeWeightsByPanels) {
  const at::Tensor x = random.normal({6, 320}), w = random.normal({900, 320});
  const at::Tensor out = at::empty({6, 900});
  few_rows_products(
      {{out, x, {}, [&](int64_t first, int64_t count) { return w.narrow(0, first, count).clone(); }}});
  EXPECT_TRUE(out.equal(product_of(x, w)));
}

TEST_F(FewRowsProducts, PassOnWhatAPanelThrows) {
  const at::Tensor x = random.normal({6, 320}), out = at::empty({6, 900});
  EXPECT_THROW(
      few_rows_products({{out, x, {}, [](int64_t, int64_t) -> at::Tensor { throw std::bad_alloc(); }}}),
      std::bad_alloc);
}

TEST_F(FewRowsProducts, AreOfEveryKindOfProcessor) {
  const at::Tensor x = random.normal({13, 100}), w = random.normal({50, 100});
  for (const FewRowsLoops* loops : {few_rows_loops_of_avx2(), few_rows_loops_of_avx512()}) {
    if (!loops) continue;
    const auto run = [&](auto loop, const at::Tensor& a, const at::Tensor& b) {
      const at::Tensor out = at::empty({13, 50});
      loop({a.const_data_ptr(), b.const_data_ptr(), out.data_ptr<float>(), 100, 100, 50, 13, 50, 100});
      EXPECT_LT(error_of(out, a, b), 1e-6);
    };
    run(loops->fp32, x, w);
    run(loops->widened, x, w.to(at::kBFloat16));
    if (loops->bf16) run(loops->bf16, x.to(at::kBFloat16), w.to(at::kBFloat16));
  }
}

}  // namespace
}  // namespace trainer
