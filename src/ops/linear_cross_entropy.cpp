#include "ops/linear_cross_entropy.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/target_device.h"
#include "memory/memory_phase.h"
#include "ops/matmul.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Caps the logits in place. Returns the slope of each, 1 - tanh^2, if requested.
at::Tensor cap(at::Tensor& logits, double soft_cap, bool want_slope) {
  logits.div_(soft_cap).tanh_();
  const at::Tensor slope = want_slope ? logits.square().neg_().add_(1) : at::Tensor();
  logits.mul_(soft_cap);
  return slope;
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  // `more` gets what is not differentiable.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& weight,
                               const at::Tensor& labels, const LossOptions& options,
                               const at::Tensor* row_weights, bool with_grad, LossSum* more) {
    const InPhase phase(MemoryPhase::loss);
    const LossGradients wanted{with_grad && hidden.requires_grad(), with_grad && weight.requires_grad()};
    const bool cpu = target_of(hidden.device()) == c10::kCPU;
    const LossParts parts =
        (cpu ? loss_parts_composite : loss_parts_gpu)(hidden, weight, labels, options, wanted, *row_weights);
    ctx->save_for_backward({parts.g_hidden, parts.g_weight});
    more->correct = options.count_correct ? parts.correct : at::Tensor();
    more->z_loss = parts.z_loss;
    more->log_probabilities = parts.log_probabilities;
    return {parts.loss};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    // The fp32 scalar times a bf16 tensor: rounded once, after the product.
    const auto scaled = [&](const at::Tensor& g) { return g.defined() ? g * grads[0] : g; };
    return {scaled(saved[0]), scaled(saved[1]), {}, {}, {}, {}, {}};
  }
};

}  // namespace

int64_t rows_per_chunk(int64_t rows, int64_t most) {
  const int64_t chunks = std::max<int64_t>((rows + most - 1) / most, 1);
  return (rows + chunks - 1) / chunks;
}

RowsOfLoss::RowsOfLoss(const at::Tensor& hidden, const LossOptions& options, const at::Tensor& row_weights) {
  const auto empty = [&](bool wanted) {
    return wanted ? at::empty({hidden.size(0)}, hidden.options().dtype(at::kFloat)) : at::Tensor();
  };
  all = {options.z_loss, row_weights.defined() ? row_weights.contiguous() : row_weights,
         empty(options.log_probabilities), empty(options.z_loss > 0)};
}

RowTerms RowsOfLoss::narrow(int64_t first, int64_t count) const {
  const auto part = [&](const at::Tensor& rows) {
    return rows.defined() ? rows.narrow(0, first, count) : at::Tensor();
  };
  return {all.z_loss, part(all.weights), part(all.log_p), part(all.log_z)};
}

void RowsOfLoss::finish(LossParts& parts) const {
  parts.log_probabilities = all.log_p;
  if (!all.log_z.defined()) return;
  at::Tensor squares = all.log_z.square();
  if (all.weights.defined()) squares.mul_(all.weights);
  parts.z_loss = squares.sum().mul_(all.z_loss);
}

LossParts loss_parts_composite(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                               const LossOptions& options, const LossGradients& wanted,
                               const at::Tensor& row_weights) {
  const double smoothing = options.label_smoothing, soft_cap = options.soft_cap;
  LossParts out;
  out.loss = at::zeros({}, hidden.options().dtype(at::kFloat));
  out.correct = at::zeros({}, labels.options());
  if (wanted.hidden) out.g_hidden = at::empty_like(hidden);
  const RowsOfLoss terms(hidden, options, row_weights);
  // bf16 logits of a built-in product need no copy in fp32, unless they are capped. So 192 MB hold three
  // times as many rows as 128 MB do in fp32, and the head's weight is packed for fewer chunks.
  const bool in_bf16 =
      soft_cap == 0 && hidden.scalar_type() == at::kBFloat16 && suits_builtin(hidden, weight.t());
  const int64_t step =
      rows_per_chunk(hidden.size(0), rows_of_small_chunks(weight.size(0)) * (in_bf16 ? 3 : 1));
  for (int64_t row = 0; row < hidden.size(0); row += step) {
    const int64_t rows = std::min(step, hidden.size(0) - row);
    const at::Tensor h = hidden.narrow(0, row, rows), y = labels.narrow(0, row, rows);
    const at::Tensor input = for_products(h);
    at::Tensor logits = times_transposed(input, weight);
    if (!in_bf16) logits = logits.to(at::kFloat);
    const at::Tensor slope = soft_cap > 0 ? cap(logits, soft_cap, wanted.any()) : at::Tensor();
    if (options.count_correct) out.correct += logits.argmax(1).eq(y).sum();
    out.loss += softmax_loss(logits, y, smoothing, wanted.any(), terms.narrow(row, rows)).sum();
    if (wanted.any() && slope.defined()) logits.mul_(slope);
    const at::Tensor g_logits = wanted.any() ? logits.to(input.scalar_type()) : at::Tensor();
    if (wanted.hidden) out.g_hidden.narrow(0, row, rows).copy_(times(g_logits, weight));
    if (wanted.weight) times_into(out.g_weight, g_logits.t(), input);
  }
  if (out.g_weight.defined()) out.g_weight = out.g_weight.to(weight.scalar_type());
  terms.finish(out);
  return out;
}

LossSum linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                             const LossOptions& options, const at::Tensor& row_weights) {
  LossSum sum;
  sum.loss = LinearCrossEntropy::apply(hidden, weight, labels, options, &row_weights,
                                       at::GradMode::is_enabled(), &sum)[0];
  return sum;
}

}  // namespace trainer
