// Which layers of a generation's step are multiplied by kernels of their own on a GPU, as a plan for one sees
// it.
#include "nn/few_rows_linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "support/planned_bytes.h"
#include "weights/fp8_weight.h"
#include "weights/nf4_weight.h"

namespace trainer {
namespace {

constexpr int64_t kFewInputs = 256, kFewOutputs = 512;

class FewRowsOfCodes : public ::testing::Test {
 protected:
  static at::Tensor planned_rows(int64_t rows) {
    return at::empty({rows, kFewInputs}, at::TensorOptions(at::kMeta).dtype(at::kBFloat16));
  }
  static Projection projection_of(const Weight& weight) {
    Projection p;
    p.weight = weight;
    return p;
  }

  const at::NoGradGuard no_grad_;
  const PlanningFor planning_{c10::kCUDA};
  const std::vector<int64_t> shape_{kFewOutputs, kFewInputs};
  const Weight nf4_{std::make_shared<Nf4Weight>(empty_nf4(shape_, true, at::kMeta), at::kBFloat16)},
      fp8_{std::make_shared<Fp8Weight>(empty_fp8(shape_, kFp8Row, at::kMeta), at::kBFloat16)},
      dense_{at::empty(shape_, at::TensorOptions(at::kMeta).dtype(at::kBFloat16))};
};

TEST_F(FewRowsOfCodes, AreTakenWithWeightsInNf4AndFp8Only) {
  const at::Tensor x = planned_rows(4);
  EXPECT_TRUE(can_take_few_rows(x, {projection_of(nf4_), projection_of(fp8_)}));
  EXPECT_FALSE(can_take_few_rows(x, {projection_of(dense_)}));
  EXPECT_FALSE(can_take_few_rows(x, {projection_of(nf4_), projection_of(dense_)}));
  EXPECT_FALSE(can_take_few_rows(planned_rows(33), {projection_of(nf4_)}));
  Projection dropped = projection_of(nf4_);
  dropped.dropout = 0.1;
  EXPECT_FALSE(can_take_few_rows(x, {dropped}));
  EXPECT_FALSE(few_rows_product(x, dense_).defined());
  EXPECT_TRUE(few_rows_product(x, nf4_).defined());
}

TEST_F(FewRowsOfCodes, NeedMemoryForTheirResultsOnly) {
  const at::Tensor x = planned_rows(4);
  Projection biased = projection_of(nf4_);
  biased.bias = at::empty({kFewOutputs}, x.options());
  const auto bytes = planned([&] { few_rows_linear(x, {biased, projection_of(fp8_)}); });
  EXPECT_EQ(bytes, (std::vector<int64_t>{4 * kFewOutputs * 2, 4 * kFewOutputs * 2}));
}

TEST_F(FewRowsOfCodes, HaveAdaptersBesideThem) {
  const at::Tensor x = planned_rows(4);
  Projection adapted = projection_of(nf4_);
  adapted.a = at::empty({8, kFewInputs}, x.options().dtype(at::kFloat));
  adapted.b = at::empty({kFewOutputs, 8}, adapted.a.options());
  const auto bytes = planned([&] { few_rows_linear(x, {adapted}); });
  EXPECT_EQ(bytes,
            (std::vector<int64_t>{4 * kFewOutputs * 2, 8 * kFewInputs * 2, 4 * 8 * 2, kFewOutputs * 8 * 2}));
}

}  // namespace
}  // namespace trainer
