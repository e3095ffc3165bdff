#include "trainer/nn/linear_cross_entropy.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/memory/memory_phase.h"
#include "trainer/nn/matmul.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kLogitChunkBytes = 128 << 20;  // of fp32 logits

// Returns the rows of a chunk; all chunks but the last are equal.
int64_t rows_per_chunk(int64_t rows, int64_t vocab) {
  const int64_t most = std::max<int64_t>(16, kLogitChunkBytes / (4 * vocab)),
                chunks = (rows + most - 1) / most;
  return (rows + chunks - 1) / std::max<int64_t>(chunks, 1);
}

// Caps the logits in place. Returns the slope of each, 1 - tanh^2, if requested.
at::Tensor cap(at::Tensor& logits, double soft_cap, bool want_slope) {
  logits.div_(soft_cap).tanh_();
  const at::Tensor slope = want_slope ? logits.square().neg_().add_(1) : at::Tensor();
  logits.mul_(soft_cap);
  return slope;
}

// Returns the sums of one chunk; leaves d(loss)/d(logits) in `logits` if requested.
at::Tensor chunk_loss(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool want_gradient) {
  const int64_t vocab = logits.size(1);
  const at::Tensor index = labels.unsqueeze(1);
  const at::Tensor log_normaliser = at::logsumexp(logits, {1}, /*keepdim=*/true);            // [rows, 1]
  at::Tensor loss = log_normaliser.sum() - logits.gather(1, index).sum() * (1 - smoothing);  // sum of nll
  if (smoothing > 0) loss -= logits.sum() * (smoothing / static_cast<double>(vocab));
  if (want_gradient) {
    logits.sub_(log_normaliser).exp_();
    if (smoothing > 0) logits.sub_(smoothing / static_cast<double>(vocab));
    logits.scatter_add_(1, index, at::full({1, 1}, smoothing - 1, logits.options()).expand_as(index));
  }
  return loss;
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& weight,
                               const at::Tensor& labels, double smoothing, bool count_correct,
                               double soft_cap, bool with_grad) {
    const bool hidden_grad = with_grad && hidden.requires_grad(),
               weight_grad = with_grad && weight.requires_grad(), any_grad = hidden_grad || weight_grad;
    const InPhase phase(MemoryPhase::loss);
    at::Tensor loss = at::zeros({}, hidden.options().dtype(at::kFloat));
    at::Tensor correct = at::zeros({}, labels.options());
    at::Tensor g_hidden = hidden_grad ? at::empty_like(hidden) : at::Tensor();
    at::Tensor g_weight;
    const int64_t step = rows_per_chunk(hidden.size(0), weight.size(0));
    for (int64_t row = 0; row < hidden.size(0); row += step) {
      const int64_t rows = std::min(step, hidden.size(0) - row);
      const at::Tensor h = hidden.narrow(0, row, rows), y = labels.narrow(0, row, rows);
      const at::Tensor input = for_products(h);
      at::Tensor logits = times_transposed(input, weight).to(at::kFloat);
      const at::Tensor slope = soft_cap > 0 ? cap(logits, soft_cap, any_grad) : at::Tensor();
      if (count_correct) correct += logits.argmax(1).eq(y).sum();
      loss += chunk_loss(logits, y, smoothing, any_grad);
      if (any_grad && slope.defined()) logits.mul_(slope);
      const at::Tensor g_logits = any_grad ? logits.to(input.scalar_type()) : at::Tensor();
      if (hidden_grad) g_hidden.narrow(0, row, rows).copy_(times(g_logits, weight));
      if (weight_grad) times_into(g_weight, g_logits.t(), input);
    }
    if (g_weight.defined()) g_weight = g_weight.to(weight.scalar_type());
    ctx->save_for_backward({g_hidden, g_weight});
    ctx->mark_non_differentiable({correct});
    return {loss, correct};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    // The fp32 scalar times a bf16 tensor: rounded once, after the product.
    const auto scaled = [&](const at::Tensor& g) { return g.defined() ? g * grads[0] : g; };
    return {scaled(saved[0]), scaled(saved[1]), {}, {}, {}, {}, {}};
  }
};

}  // namespace

LossSum linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                             double label_smoothing, bool count_correct, double soft_cap) {
  const variable_list out = LinearCrossEntropy::apply(hidden, weight, labels, label_smoothing, count_correct,
                                                      soft_cap, at::GradMode::is_enabled());
  return {out[0], count_correct ? out[1] : at::Tensor()};
}

}  // namespace trainer
