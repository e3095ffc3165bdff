// The loss with bf16 logits of built-in products: the numbers, and the memory.
#include "trainer/ops/linear_cross_entropy.h"

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

}  // namespace
}  // namespace trainer
