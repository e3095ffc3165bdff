// Norms and rotary embedding of queries and keys in one kernel, run on the CPU (support/emulated_gpu.h).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/emulated_kernels.h"
#include "ops/rotate_qk.h"
#include "ops/side_by_side.h"
#include "support/reference.h"

namespace trainer {
namespace {

enum class Norms { none, weight, one_plus_weight };

class RotateQkKernel : public ::testing::TestWithParam<std::tuple<at::ScalarType, Norms>> {
 protected:
  at::ScalarType type() const { return std::get<0>(GetParam()); }
  bool normed() const { return std::get<1>(GetParam()) != Norms::none; }
  bool plus_one() const { return std::get<1>(GetParam()) == Norms::one_plus_weight; }
  at::Tensor normal(at::IntArrayRef shape) { return random_.normal(shape, type()); }
  void near(const at::Tensor& ours, const at::Tensor& cpu) const {
    ASSERT_EQ(ours.sizes(), cpu.sizes());
    EXPECT_EQ(ours.scalar_type(), cpu.scalar_type());
    const double bf16_bound = normed() ? 1e-3 : 0.0;
    EXPECT_LE(relative_difference(ours, cpu), type() == at::kBFloat16 ? bf16_bound : 5e-7);
  }
  // Forward and backward by both operators.
  void compare(const QkPair& in, const at::Tensor& cos, const at::Tensor& sin, bool wide) {
    const int64_t cols = in.q.size(3);
    QkNorms norms{{}, {}, 1e-5, plus_one()};
    if (normed()) {
      norms.q_weight = normal({cols});
      norms.k_weight = normal({cols});
    }
    const RotatedQk cpu = rotate_qk(in, norms, cos, sin);
    const auto [rotated, rstd] = as_on_a_gpu([&] { return rotate_qk(in, norms, cos, sin); });
    EXPECT_EQ(gpu_.was_wide(), wide);
    near(rotated.q, cpu.out.q);
    near(rotated.k, cpu.out.k);
    EXPECT_EQ(rotated.q.strides(), cpu.out.q.strides());
    EXPECT_EQ(rstd.q.defined(), normed());
    if (normed()) {
      EXPECT_LE(relative_difference(rstd.q, cpu.rstd.q), 5e-7);
      EXPECT_LE(relative_difference(rstd.k, cpu.rstd.k), 5e-7);
    }
    // Attention's gradients are laid out by position or by head.
    for (const bool by_head : {false, true}) {
      QkPair grad{normal(in.q.sizes()).transpose(1, 2), normal(in.k.sizes()).transpose(1, 2)};
      if (by_head) grad = {grad.q.contiguous(), grad.k.contiguous()};
      const QkGradients expected = rotate_qk_backward(grad, in, cpu.rstd, norms, cos, sin, normed());
      const QkGradients ours =
          as_on_a_gpu([&] { return rotate_qk_backward(grad, in, cpu.rstd, norms, cos, sin, normed()); });
      EXPECT_EQ(gpu_.was_wide(), wide);
      near(ours.in.q, expected.in.q);
      near(ours.in.k, expected.in.k);
      ASSERT_EQ(ours.weights.q.defined(), normed());
      if (normed()) {
        near(ours.weights.q, expected.weights.q);
        near(ours.weights.k, expected.weights.k);
      }
      const at::Tensor g_v =
          by_head ? normal(in.k.transpose(1, 2).sizes()) : normal(in.k.sizes()).transpose(1, 2);
      const QkGradients beside =
          as_on_a_gpu([&] { return rotate_qk_backward(grad, in, cpu.rstd, norms, cos, sin, normed(), g_v); });
      EXPECT_EQ(gpu_.was_wide(), wide);
      EXPECT_TRUE(beside.in.q.equal(ours.in.q));
      EXPECT_TRUE(beside.in.k.equal(ours.in.k));
      EXPECT_TRUE(beside.v.equal(g_v.transpose(1, 2)));
      EXPECT_TRUE(side_by_side({beside.in.q.flatten(2), beside.in.k.flatten(2), beside.v.flatten(2)}));
    }
  }

  Random random_{37};
  EmulatedGpu gpu_;
};

TEST_P(RotateQkKernel, IsTheCpus) {
  for (const int64_t half : {8, 5, 48, 64}) {
    for (const int64_t table_rows : {1, 3}) {
      const at::Tensor cos = normal({table_rows, 1, 7, half}), sin = normal({table_rows, 1, 7, half});
      compare({normal({3, 7, 4, 2 * half}), normal({3, 7, 2, 2 * half})}, cos, sin, half % 8 == 0);
    }
  }
}

// The columns of a head behind the rotated ones pass; with norms they are normalised with the others.
TEST_P(RotateQkKernel, RotatesTheFirstColumnsOfAHead) {
  struct Widths {
    int64_t half, head_dim;
    bool wide;
  };
  for (const auto [half, head_dim, wide] :
       {Widths{48, 128, true}, {8, 32, true}, {8, 64, true}, {8, 20, false}, {3, 16, false}}) {
    const at::Tensor cos = normal({7, half}), sin = normal({7, half});
    compare({normal({2, 7, 4, head_dim}), normal({2, 7, 2, head_dim})}, cos, sin, wide);
  }
}

// As parts of one product.
TEST_P(RotateQkKernel, TakesQueriesAndKeysThatAreParts) {
  const at::Tensor all = normal({2, 9, 7, 32}), cos = normal({9, 16}), sin = normal({9, 16});
  compare({all.narrow(2, 0, 4), all.narrow(2, 4, 2)}, cos, sin, true);
}

TEST_P(RotateQkKernel, SumsTheWeightsGradientsOverManyPositions) {
  const at::Tensor cos = normal({150, 8}), sin = normal({150, 8});
  compare({normal({2, 150, 3, 16}), normal({2, 150, 1, 16})}, cos, sin, true);
}

INSTANTIATE_TEST_SUITE_P(Cases, RotateQkKernel,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Values(Norms::none, Norms::weight,
                                                              Norms::one_plus_weight)));

}  // namespace
}  // namespace trainer
