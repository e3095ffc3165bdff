#include "ops/linear_cross_entropy.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/observed.h"
#include "device/target_device.h"
#include "memory/memory_phase.h"
#include "ops/kernels.h"
#include "ops/matmul.h"
#include "ops/teacher_term.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kLogitsAtOnce = 8;  // logits that a thread moves at once

// The same as in linear_cross_entropy.cu.
struct LossTerms {
  int vocab, stride;
  float soft_cap, smoothing, z_loss, focal_gamma, share;
};

// One block a row, with as many threads as keep enough of a long row under way.
KernelGrid grid_of_logits(int64_t rows, int64_t vocab) {
  const int64_t warps = (vocab + 32 * kLogitsAtOnce - 1) / (32 * kLogitsAtOnce);
  return {rows, 1, 32 * std::clamp<int64_t>(warps, 1, 16)};
}

void* values_or_null(const at::Tensor& rows) { return rows.defined() ? rows.mutable_data_ptr() : nullptr; }

// logits = x w^T in fp32. With an output of another type, LibTorch has this product on CUDA only.
void multiply(at::Tensor& logits, const at::Tensor& x, const at::Tensor& w) {
  if (x.scalar_type() == at::kFloat) {
    at::mm_out(logits, x, w.t());
  } else if (x.is_cuda()) {
    at::mm_out(logits, x, w.t(), at::kFloat);
  } else if (!x.is_meta()) {  // kernels emulated on the CPU
    at::mm_out(logits, x.to(at::kFloat), w.to(at::kFloat).t());
  }
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
        (cpu ? loss_parts_cpu : loss_parts_gpu)(hidden, weight, labels, options, wanted, *row_weights);
    ctx->save_for_backward({parts.g_hidden, parts.g_weight});
    ctx->set_materialize_grads(false);
    more->correct = options.count_correct ? parts.correct : at::Tensor();
    more->z_loss = parts.z_loss;
    more->divergence = parts.divergence;
    more->log_probabilities = parts.log_probabilities;
    const bool plain = !row_weights->defined() && options.label_smoothing == 0 && options.z_loss == 0 &&
                       options.focal_gamma == 0 && !options.teacher.defined();
    if (!parts.log_probabilities.defined()) return {parts.loss};
    if (!plain || wanted.weight) ctx->mark_non_differentiable({parts.log_probabilities});
    return {parts.loss, parts.log_probabilities};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    // The fp32 scalar times a bf16 tensor: rounded once, after the product.
    const auto scaled = [&](const at::Tensor& g) {
      return g.defined() && grads[0].defined() ? g * grads[0] : at::Tensor();
    };
    at::Tensor g_hidden = scaled(saved[0]);
    if (grads.size() > 1 && grads[1].defined() && saved[0].defined()) {  // the loss of a row is -log p
      at::Tensor of_rows = at::empty_like(saved[0]);
      at::mul_out(of_rows, saved[0], grads[1].neg().unsqueeze(1));  // rounded once, too
      g_hidden = g_hidden.defined() ? g_hidden + of_rows : of_rows;
    }
    return {g_hidden, scaled(saved[1]), {}, {}, {}, {}, {}};
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
  const bool taught = options.teacher.defined();
  all = {options.z_loss,
         row_weights.defined() ? row_weights.contiguous() : row_weights,
         empty(options.log_probabilities || taught),
         empty(options.z_loss > 0 || taught),
         options.focal_gamma,
         taught ? 1 - options.teacher.weight : 1.0,
         {}};
  keeps_log_p_ = options.log_probabilities;
  of_divergence_ = options.teacher.weight * options.teacher.temperature * options.teacher.temperature;
}

RowTerms RowsOfLoss::narrow(int64_t first, int64_t count) const {
  const auto part = [&](const at::Tensor& rows) {
    return rows.defined() ? rows.narrow(0, first, count) : at::Tensor();
  };
  return {all.z_loss, part(all.weights), part(all.log_p), part(all.log_z), all.focal_gamma, all.share, {}};
}

void RowsOfLoss::finish(LossParts& parts) const {
  if (keeps_log_p_) parts.log_probabilities = all.log_p;
  if (parts.divergence.defined()) parts.loss = parts.loss + parts.divergence * of_divergence_;
  if (all.z_loss == 0) return;
  at::Tensor squares = all.log_z.square();
  if (all.weights.defined()) squares.mul_(all.weights);
  parts.z_loss = squares.sum().mul_(all.z_loss);
}

LossParts loss_parts_gpu(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                         const LossOptions& options, const LossGradients& wanted,
                         const at::Tensor& row_weights) {
  const int64_t count = hidden.size(0), vocab = weight.size(0);
  const int64_t stride = (vocab + kLogitsAtOnce - 1) / kLogitsAtOnce * kLogitsAtOnce;
  check_fits(2 * stride, "linear_cross_entropy");
  const Kernels& kernels = kernels_for(hidden, "linear_cross_entropy", kLogitsAtOnce);
  const at::TensorOptions fp32 = hidden.options().dtype(at::kFloat);
  const at::Tensor y = labels.contiguous(), loss = at::empty({count}, fp32);
  at::Tensor correct;
  if (options.count_correct) correct = at::empty({count}, labels.options());
  LossParts out;
  if (wanted.hidden) out.g_hidden = at::empty_like(hidden);
  const RowsOfLoss rows_of_loss(hidden, options, row_weights);
  const int64_t most = std::max(wanted.any() ? options.chunk_rows : 1, rows_of_small_chunks(vocab));
  const int64_t step = rows_per_chunk(count, most);
  const at::Tensor place = at::empty({step, stride}, fp32);
  const LossTerms terms{static_cast<int>(vocab),
                        static_cast<int>(stride),
                        static_cast<float>(options.soft_cap),
                        static_cast<float>(options.label_smoothing),
                        static_cast<float>(options.z_loss),
                        static_cast<float>(options.focal_gamma),
                        static_cast<float>(rows_of_loss.all.share)};
  for (int64_t row = 0; row < count; row += step) {
    const int64_t rows = std::min(step, count - row);
    const at::Tensor x = hidden.narrow(0, row, rows);
    at::Tensor logits = place.narrow(0, 0, rows).narrow(1, 0, vocab);
    multiply(logits, x, weight);
    const at::Tensor loss_here = loss.narrow(0, row, rows), y_here = y.narrow(0, row, rows);
    at::Tensor correct_here;
    if (correct.defined()) correct_here = correct.narrow(0, row, rows);
    RowTerms of_rows = rows_of_loss.narrow(row, rows);
    TeacherOfRows taught(options, rows_of_loss.all.weights, row, rows);
    taught.look_at(logits, /*capped=*/false);
    of_rows.of_p = taught.of_p();
    at::Tensor gradient = place.view(hidden.scalar_type()).narrow(0, 0, rows).narrow(1, 0, vocab);
    observed(
        "trainer::loss_of_rows",
        [&] {
          return std::vector{logits, logits, gradient};
        },
        [&] {
          kernels.start("loss_of_rows", grid_of_logits(rows, vocab), logits.mutable_data_ptr(),
                        elements(y_here, hidden, at::kLong), loss_here.mutable_data_ptr(),
                        values_or_null(correct_here), values_or_null(of_rows.weights),
                        values_or_null(of_rows.log_p), values_or_null(of_rows.log_z),
                        values_or_null(of_rows.of_p), terms, static_cast<int>(wanted.any()));
        });
    if (wanted.any()) taught.put_gradients(gradient, y_here, of_rows, /*capped=*/false);
    taught.add_to(out);
    if (wanted.hidden) {
      at::Tensor g_here = out.g_hidden.narrow(0, row, rows);
      at::mm_out(g_here, gradient, weight);
    }
    if (wanted.weight) times_into(out.g_weight, gradient.t(), x);
  }
  out.loss = loss.sum();
  out.correct = correct.defined() ? correct.sum() : at::zeros({}, labels.options());
  rows_of_loss.finish(out);
  return out;
}

LossSum linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                             const LossOptions& options, const at::Tensor& row_weights) {
  LossSum sum;
  const variable_list outputs = LinearCrossEntropy::apply(hidden, weight, labels, options, &row_weights,
                                                          at::GradMode::is_enabled(), &sum);
  sum.loss = outputs[0];
  if (outputs.size() > 1) sum.log_probabilities = outputs[1];
  return sum;
}

}  // namespace trainer
