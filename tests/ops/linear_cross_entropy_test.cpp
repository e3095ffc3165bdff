// The loss with bf16 logits of built-in products: the numbers, and the memory.
#include "trainer/ops/linear_cross_entropy.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gemm/product_tiles.h"
#include "ops/cpu_products_are.h"
#include "support/counting_allocator.h"
#include "support/reference.h"

namespace trainer {
namespace {

TEST(LinearCrossEntropy, OfBf16LogitsIsThatOfFp64AndKeepsThemOnce) {
  if (!bf16_tiles()) GTEST_SKIP() << "this processor has no bf16 products of this program";
  const CpuProductsAre builtin(CpuProducts::builtin);
  constexpr int64_t rows = 250, width = 64, vocab = 20'011;
  Random random(4);
  const at::Tensor labels = (at::arange(rows) * 7919).remainder(vocab);
  at::Tensor hidden = random.normal({rows, width}, at::kBFloat16);
  const at::Tensor weight = random.normal({vocab, width}, at::kBFloat16) / 4;

  const at::Tensor x = hidden.to(at::kDouble).set_requires_grad(true), w = weight.to(at::kDouble);
  at::Tensor logits = x.mm(w.t());
  logits = logits + (logits.to(at::kBFloat16).to(at::kDouble) - logits).detach();  // rounded
  const at::Tensor expected = -logits.log_softmax(1).gather(1, labels.unsqueeze(1)).sum();
  expected.backward();

  hidden.set_requires_grad(true);
  const CountsAllocations counts;
  CountingAllocator& allocator = CountingAllocator::instance();
  allocator.reset_peak();
  const int64_t before = allocator.in_use();
  const LossSum sum = linear_cross_entropy(hidden, weight, labels, {});
  EXPECT_LE(allocator.peak() - before, 2 * rows * vocab + 500'000) << "more than the logits";
  sum.loss.backward();
  EXPECT_NEAR(sum.loss.item<double>() / expected.item<double>(), 1, 1e-5);
  EXPECT_LE(relative_difference(hidden.grad(), x.grad()), 4e-3);  // two roundings to bf16
}

// Through autograd: fp64 of LibTorch's operators is the reference.
TEST(LinearCrossEntropy, WithWeightsAndZLossIsThatOfFp64) {
  constexpr int64_t rows = 50, width = 8, vocab = 5'003;
  Random random(8);
  const at::Tensor labels = (at::arange(rows) * 7919).remainder(vocab), weights = random.normal({rows}).abs();
  at::Tensor hidden = random.normal({rows, width}), weight = random.normal({vocab, width});
  for (const double soft_cap : {0.0, 4.0}) {
    const at::Tensor x = hidden.to(at::kDouble).set_requires_grad(true),
                     w = weight.to(at::kDouble).set_requires_grad(true);
    at::Tensor logits = x.mm(w.t());
    if (soft_cap > 0) logits = (logits / soft_cap).tanh() * soft_cap;
    const at::Tensor log_p = logits.log_softmax(1),
                     of_label = log_p.gather(1, labels.unsqueeze(1)).squeeze(1);
    const at::Tensor cross_entropy = -0.9 * of_label - 0.1 * log_p.mean(1),
                     z = 1e-3 * logits.logsumexp(1).square();
    ((cross_entropy + z) * weights).sum().mul(0.25).backward();

    const at::Tensor our_x = hidden.clone().set_requires_grad(true),
                     our_w = weight.clone().set_requires_grad(true);
    LossOptions options{.label_smoothing = 0.1, .soft_cap = soft_cap};
    options.z_loss = 1e-3;
    options.log_probabilities = true;
    const LossSum sum = linear_cross_entropy(our_x, our_w, labels, options, weights);
    sum.loss.mul(0.25).backward();
    EXPECT_LT(relative_difference(sum.loss.detach(), ((cross_entropy + z) * weights).sum().detach()), 1e-6);
    EXPECT_LT(relative_difference(sum.z_loss, (z * weights).sum().detach()), 1e-6);
    EXPECT_LT(relative_difference(sum.log_probabilities, of_label.detach()), 1e-6);
    EXPECT_LT(relative_difference(our_x.grad(), x.grad()), 3e-6);
    EXPECT_LT(relative_difference(our_w.grad(), w.grad()), 3e-6);
    EXPECT_FALSE(sum.log_probabilities.requires_grad());
  }
}

TEST(LinearCrossEntropy, OfFocalLossIsThatOfFp64) {
  constexpr int64_t rows = 50, width = 8, vocab = 503;
  Random random(12);
  const at::Tensor labels = (at::arange(rows) * 79).remainder(vocab), weights = random.normal({rows}).abs();
  const at::Tensor hidden = random.normal({rows, width}), weight = random.normal({vocab, width});
  for (const double gamma : {0.5, 2.0}) {
    for (const double smoothing : {0.0, 0.1}) {
      const at::Tensor x = hidden.to(at::kDouble).set_requires_grad(true),
                       w = weight.to(at::kDouble).set_requires_grad(true);
      const at::Tensor log_p = x.mm(w.t()).log_softmax(1),
                       of_label = log_p.gather(1, labels.unsqueeze(1)).squeeze(1);
      const at::Tensor expected =
          (((1 - smoothing) * (1 - of_label.exp()).pow(gamma) * -of_label - smoothing * log_p.mean(1)) *
           weights)
              .sum();
      expected.backward();
      const at::Tensor our_x = hidden.clone().set_requires_grad(true),
                       our_w = weight.clone().set_requires_grad(true);
      LossOptions options{.label_smoothing = smoothing};
      options.focal_gamma = gamma;
      const LossSum sum = linear_cross_entropy(our_x, our_w, labels, options, weights);
      sum.loss.backward();
      EXPECT_LT(relative_difference(sum.loss.detach(), expected.detach()), 1e-6);
      EXPECT_LT(relative_difference(our_x.grad(), x.grad()), 3e-6);
      EXPECT_LT(relative_difference(our_w.grad(), w.grad()), 3e-6);
    }
  }
}

// A token of which the model is sure has neither loss nor slope, and no NaN.
TEST(LinearCrossEntropy, OfFocalLossIsNothingWhereTheModelIsSure) {
  const at::Tensor hidden = at::ones({1, 1}).set_requires_grad(true);
  LossOptions options;
  options.focal_gamma = 0.5;
  const LossSum sum = linear_cross_entropy(hidden, at::tensor({200.0F, 0.0F, 0.0F}).unsqueeze(1),
                                           at::zeros({1}, at::kLong), options);
  sum.loss.backward();
  EXPECT_EQ(sum.loss.item<float>(), 0);
  EXPECT_EQ(hidden.grad().item<float>(), 0);
}

// The likeliest tokens of a teacher, in fp32.
TeacherTerm likeliest_of(const at::Tensor& logits, int64_t top) {
  TeacherTerm teacher;
  const auto [values, ids] = logits.to(at::kDouble).log_softmax(1).topk(top, 1);
  teacher.ids = ids;
  teacher.log_probs = values.to(at::kFloat);
  return teacher;
}

// log p^(1/T) of the tokens that are named and the rest.
at::Tensor named_and_rest(const at::Tensor& logits, const at::Tensor& ids, double temperature) {
  const at::Tensor log_p = logits.log_softmax(1), named = log_p.gather(1, ids);
  if (ids.size(1) == logits.size(1)) return (named / temperature).log_softmax(1);
  const at::Tensor rest =
      log_p.scatter(1, ids, -std::numeric_limits<double>::infinity()).logsumexp(1, /*keepdim=*/true);
  return (at::cat({named, rest}, 1) / temperature).log_softmax(1);
}

TEST(LinearCrossEntropy, WithATeacherIsThatOfFp64) {
  constexpr int64_t rows = 40, width = 8, vocab = 303;
  Random random(14);
  const at::Tensor labels = (at::arange(rows) * 79).remainder(vocab), weights = random.normal({rows}).abs();
  const at::Tensor hidden = random.normal({rows, width}), weight = random.normal({vocab, width});
  const at::Tensor theirs = random.normal({rows, vocab}).to(at::kDouble) * 2;
  for (const int64_t top : {int64_t{1}, int64_t{7}, vocab}) {
    for (const bool reverse : {false, true}) {
      for (const double soft_cap : {0.0, 4.0}) {
        SCOPED_TRACE(testing::Message() << top << " " << reverse << " " << soft_cap);
        LossOptions options{.label_smoothing = 0.1, .soft_cap = soft_cap};
        options.z_loss = 1e-3;
        options.focal_gamma = 1.5;
        options.teacher = likeliest_of(theirs, top);
        options.teacher.weight = 0.3;
        options.teacher.temperature = 2;
        options.teacher.reverse = reverse;
        const at::Tensor x = hidden.to(at::kDouble).set_requires_grad(true),
                         w = weight.to(at::kDouble).set_requires_grad(true);
        at::Tensor logits = x.mm(w.t());
        if (soft_cap > 0) logits = (logits / soft_cap).tanh() * soft_cap;
        const at::Tensor log_p = logits.log_softmax(1),
                         of_label = log_p.gather(1, labels.unsqueeze(1)).squeeze(1);
        const at::Tensor p = named_and_rest(logits, options.teacher.ids, 2),
                         q = named_and_rest(theirs, options.teacher.ids, 2);
        const at::Tensor divergence = (reverse ? p.exp() * (p - q) : q.exp() * (q - p)).sum(1);
        const at::Tensor own = 0.9 * (1 - of_label.exp()).pow(1.5) * -of_label - 0.1 * log_p.mean(1);
        const at::Tensor expected =
            ((0.7 * own + 0.3 * 4 * divergence + 1e-3 * logits.logsumexp(1).square()) * weights).sum();
        expected.backward();
        const at::Tensor our_x = hidden.clone().set_requires_grad(true),
                         our_w = weight.clone().set_requires_grad(true);
        const LossSum sum = linear_cross_entropy(our_x, our_w, labels, options, weights);
        sum.loss.backward();
        EXPECT_LT(relative_difference(sum.loss.detach(), expected.detach()), 2e-6);
        EXPECT_LT(relative_difference(sum.divergence, (divergence * weights).sum().detach()), 2e-6);
        EXPECT_LT(relative_difference(our_x.grad(), x.grad()), 5e-6);
        EXPECT_LT(relative_difference(our_w.grad(), w.grad()), 5e-6);
      }
    }
  }
}

// What is no token stands for the first one.
TEST(LinearCrossEntropy, ATeacherMayNameFewerTokens) {
  Random random(15);
  const at::Tensor labels = at::arange(4), hidden = random.normal({4, 8}), weight = random.normal({30, 8});
  LossOptions few, many;
  few.teacher = many.teacher = likeliest_of(random.normal({4, 30}), 3);
  many.teacher.ids = at::cat({few.teacher.ids, few.teacher.ids.narrow(1, 0, 1).expand({4, 2})}, 1);
  many.teacher.log_probs =
      at::cat({few.teacher.log_probs, at::full({4, 2}, -std::numeric_limits<float>::infinity())}, 1);
  const at::Tensor x = hidden.clone().set_requires_grad(true), y = hidden.clone().set_requires_grad(true);
  const LossSum a = linear_cross_entropy(x, weight, labels, few),
                b = linear_cross_entropy(y, weight, labels, many);
  a.loss.backward();
  b.loss.backward();
  EXPECT_TRUE(a.loss.equal(b.loss));
  EXPECT_TRUE(x.grad().equal(y.grad()));
}

TEST(LinearCrossEntropy, OfTheTeacherItselfHasNoDivergence) {
  Random random(16);
  const at::Tensor labels = at::arange(4), weight = random.normal({30, 8});
  for (const bool reverse : {false, true}) {
    at::Tensor hidden = random.normal({4, 8});
    LossOptions options;
    options.teacher = likeliest_of(hidden.mm(weight.t()), 5);
    options.teacher.weight = 1;
    options.teacher.temperature = 3;
    options.teacher.reverse = reverse;
    hidden.set_requires_grad(true);
    const LossSum sum = linear_cross_entropy(hidden, weight, labels, options);
    sum.loss.backward();
    EXPECT_LT(std::abs(sum.loss.item<double>()), 1e-6);
    EXPECT_LT(hidden.grad().abs().max().item<double>(), 1e-5);
  }
}

TEST(LinearCrossEntropy, InChunksEachRowHasItsOwnWeightAndProbability) {
  constexpr int64_t rows = 40, vocab = 1'000'003;  // two chunks of 20
  Random random(9);
  const at::Tensor hidden = random.normal({rows, 2}), weight = random.normal({vocab, 2}),
                   labels = at::arange(rows) * 977, weights = random.normal({rows}).abs();
  LossOptions options;
  options.log_probabilities = true;
  const LossSum whole = linear_cross_entropy(hidden, weight, labels, options, weights);
  const LossSum unweighted = linear_cross_entropy(hidden, weight, labels, options);
  EXPECT_LT(relative_difference(whole.loss, -(whole.log_probabilities * weights).sum()), 1e-6);
  EXPECT_LT(relative_difference(unweighted.loss, -whole.log_probabilities.sum()), 1e-6);
  for (const int64_t row : {0, 19, 20, 39}) {
    const LossSum one =
        linear_cross_entropy(hidden.narrow(0, row, 1), weight, labels.narrow(0, row, 1), options);
    EXPECT_NEAR(one.loss.item<double>(), -whole.log_probabilities[row].item<double>(), 1e-5);
  }
}

TEST(LinearCrossEntropy, GivesNothingThatIsNotAskedFor) {
  const LossSum sum = linear_cross_entropy(at::ones({2, 4}), at::ones({5, 4}), at::zeros({2}, at::kLong), {});
  EXPECT_FALSE(sum.correct.defined() || sum.z_loss.defined() || sum.log_probabilities.defined() ||
               sum.divergence.defined());
}

}  // namespace
}  // namespace trainer
