// The loss of a chunk of logits has the value and the gradient of fp64.
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "ops/linear_cross_entropy.h"
#include "support/reference.h"

namespace trainer {
namespace {

struct Expected {
  at::Tensor losses, gradient;
};

Expected in_fp64(const at::Tensor& logits_, const at::Tensor& labels, double smoothing) {
  const at::Tensor logits = logits_.to(at::kDouble).set_requires_grad(true);
  const at::Tensor log_p = logits.log_softmax(1);
  const at::Tensor losses =
      -(1 - smoothing) * log_p.gather(1, labels.unsqueeze(1)).squeeze(1) - smoothing * log_p.mean(1);
  losses.sum().backward();
  return {losses.detach(), logits.grad()};
}

// Rows of logits of unit size and in the hundreds, and a vocabulary that is no multiple of anything.
TEST(SoftmaxLoss, AndItsGradientAreThoseOfFp64) {
  Random random(1);
  for (const double smoothing : {0.0, 0.1}) {
    for (const double size : {1.0, 300.0}) {
      const at::Tensor logits = random.normal({37, 5003}) * size;
      const at::Tensor labels = at::arange(37).mul_(133);
      const Expected expected = in_fp64(logits, labels, smoothing);
      at::Tensor unchanged = logits.clone(), gradient = logits.clone();
      EXPECT_LT(relative_difference(softmax_loss(unchanged, labels, smoothing, false), expected.losses),
                2e-7);
      EXPECT_TRUE(at::equal(unchanged, logits)) << "nothing asked for the gradient";
      EXPECT_LT(relative_difference(softmax_loss(gradient, labels, smoothing, true), expected.losses), 2e-7);
      EXPECT_LT(relative_difference(gradient, expected.gradient), 1e-6);
    }
  }
}

// All that may be asked of a row, on both types: in bf16 the logits are rounded before, and their gradient
// after.
TEST(SoftmaxLoss, HasWeightsAndAnotherTermAndTellsItsProbabilities) {
  Random random(5);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const double smoothing : {0.0, 0.1}) {
      at::Tensor logits = (random.normal({9, 5003}) * 3).to(type);
      const at::Tensor labels = at::arange(9).mul_(533);
      RowTerms terms{0.01, random.normal({9}), at::empty({9}), at::empty({9})};  // also negative weights
      terms.weights[4] = 0;
      const at::Tensor exact = logits.to(at::kDouble).set_requires_grad(true), log_p = exact.log_softmax(1),
                       log_z = exact.logsumexp(1);
      const at::Tensor of_label = log_p.gather(1, labels.unsqueeze(1)).squeeze(1);
      const at::Tensor losses =
          (-(1 - smoothing) * of_label - smoothing * log_p.mean(1) + 0.01 * log_z.square()) *
          terms.weights.to(at::kDouble);
      losses.sum().backward();
      const at::Tensor ours = softmax_loss(logits, labels, smoothing, true, terms);
      EXPECT_LT(relative_difference(ours, losses.detach()), 3e-7);
      EXPECT_LT(relative_difference(terms.log_p, of_label.detach()), 3e-7);
      EXPECT_LT(relative_difference(terms.log_z, log_z.detach()), 3e-7);
      EXPECT_LT(relative_difference(logits, exact.grad()), type == at::kFloat ? 1e-6 : 3e-3);
      EXPECT_EQ(logits[4].abs().max().item<float>(), 0.0f);
    }
  }
}

TEST(SoftmaxLoss, HasTheSameBitsWithWeightsOfOne) {
  Random random(6);
  at::Tensor plain = random.normal({7, 1003}), weighted = plain.clone();
  const at::Tensor labels = at::arange(7);
  const RowTerms ones{0.0, at::ones({7}), {}, {}};
  EXPECT_TRUE(softmax_loss(plain, labels, 0.1, true).equal(softmax_loss(weighted, labels, 0.1, true, ones)));
  EXPECT_TRUE(plain.equal(weighted));
}

// Half a step of bf16, and fp32's error: a label that is almost certain has a gradient near 0, which p - 1
// would not have if p were rounded.
TEST(SoftmaxLoss, HasAGradientThatIsRoundedOnceToBf16) {
  Random random(3);
  for (const double smoothing : {0.0, 0.1}) {
    at::Tensor logits = random.normal({37, 5003}, at::kBFloat16) * 2;
    const at::Tensor labels = at::arange(37).mul_(133);
    logits.narrow(0, 20, 17).scatter_(1, labels.narrow(0, 20, 17).unsqueeze(1), 13.0);
    const Expected expected = in_fp64(logits, labels, smoothing);
    at::Tensor unchanged = logits.clone();
    EXPECT_LT(relative_difference(softmax_loss(unchanged, labels, smoothing, false), expected.losses), 2e-7);
    EXPECT_TRUE(at::equal(unchanged, logits)) << "nothing asked for the gradient";
    EXPECT_LT(relative_difference(softmax_loss(logits, labels, smoothing, true), expected.losses), 2e-7);
    ASSERT_EQ(logits.scalar_type(), at::kBFloat16);
    const at::Tensor off = (logits.to(at::kDouble) - expected.gradient).abs();
    EXPECT_TRUE(off.le(expected.gradient.abs() * 0.00391 + 2e-7).all().item<bool>())
        << (off - expected.gradient.abs() * 0.00391).max();
  }
}

TEST(SoftmaxLoss, HasTheSameBitsOnAnyNumberOfThreads) {
  Random random(2);
  const at::Tensor logits = random.normal({9, 70000}), labels = at::arange(9);
  at::Tensor one = logits.clone(), many = logits.clone();
  const at::Tensor losses = softmax_loss(many, labels, 0.0, true);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_TRUE(at::equal(softmax_loss(one, labels, 0.0, true), losses));
  EXPECT_TRUE(at::equal(one, many));
  at::set_num_threads(threads);
}

TEST(SoftmaxLoss, IsNotANumberWhereALogitIsNone) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    at::Tensor logits = at::zeros({2, 100}, type);
    logits[1][7] = std::numeric_limits<float>::quiet_NaN();
    const at::Tensor losses = softmax_loss(logits, at::zeros({2}, at::kLong), 0.0, true);
    EXPECT_TRUE(losses.isfinite().equal(at::tensor({1, 0}).to(at::kBool)));
    EXPECT_TRUE(logits[1].isnan().all().item<bool>());
  }
}

}  // namespace
}  // namespace trainer
