// The loss and its gradients on a GPU: cross_entropy.cu, or LibTorch's operators.
#include <algorithm>

#include <ATen/ATen.h>

#include "ops/kernels.h"
#include "ops/linear_cross_entropy.h"
#include "ops/matmul.h"

namespace trainer {
namespace {

constexpr int64_t kWidth = 8;              // logits that a thread moves at once
constexpr int64_t kLargeChunkRows = 1024;  // the products' rows outweigh reading the weight

// The same as in cross_entropy.cu.
struct LossTerms {
  int vocab, stride;
  float soft_cap, smoothing, z_loss;
};

// One block a row, with as many threads as keep enough of a long row under way.
KernelGrid grid_of_logits(int64_t rows, int64_t vocab) {
  const int64_t warps = (vocab + 32 * kWidth - 1) / (32 * kWidth);
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

}  // namespace

LossParts loss_parts_gpu(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                         const LossOptions& options, const LossGradients& wanted,
                         const at::Tensor& row_weights) {
  const int64_t count = hidden.size(0), vocab = weight.size(0);
  const int64_t stride = (vocab + kWidth - 1) / kWidth * kWidth;
  const Kernels* kernels =
      fits_int(2 * stride) ? kernels_for(hidden, kernel_files::cross_entropy, kWidth) : nullptr;
  if (kernels == nullptr) return loss_parts_composite(hidden, weight, labels, options, wanted, row_weights);

  const at::TensorOptions fp32 = hidden.options().dtype(at::kFloat);
  const at::Tensor y = labels.contiguous(), loss = at::empty({count}, fp32);
  at::Tensor correct;
  if (options.count_correct) correct = at::empty({count}, labels.options());
  LossParts out;
  if (wanted.hidden) out.g_hidden = at::empty_like(hidden);
  const RowsOfLoss rows_of_loss(hidden, options, row_weights);
  const bool small = options.small_chunks || !wanted.any();
  const int64_t step =
      rows_per_chunk(count, std::max(small ? 1 : kLargeChunkRows, rows_of_small_chunks(vocab)));
  const at::Tensor place = at::empty({step, stride}, fp32);
  const LossTerms terms{static_cast<int>(vocab), static_cast<int>(stride),
                        static_cast<float>(options.soft_cap), static_cast<float>(options.label_smoothing),
                        static_cast<float>(options.z_loss)};
  for (int64_t row = 0; row < count; row += step) {
    const int64_t rows = std::min(step, count - row);
    const at::Tensor x = hidden.narrow(0, row, rows);
    at::Tensor logits = place.narrow(0, 0, rows).narrow(1, 0, vocab);
    multiply(logits, x, weight);
    const at::Tensor loss_here = loss.narrow(0, row, rows), y_here = y.narrow(0, row, rows);
    at::Tensor correct_here;
    if (correct.defined()) correct_here = correct.narrow(0, row, rows);
    const RowTerms of_rows = rows_of_loss.narrow(row, rows);
    kernels->start("loss_of_rows", grid_of_logits(rows, vocab), logits.mutable_data_ptr(),
                   elements(y_here, hidden, at::kLong), loss_here.mutable_data_ptr(),
                   values_or_null(correct_here), values_or_null(of_rows.weights),
                   values_or_null(of_rows.log_p), values_or_null(of_rows.log_z), terms,
                   static_cast<int>(wanted.any()));
    const at::Tensor gradient = place.view(hidden.scalar_type()).narrow(0, 0, rows).narrow(1, 0, vocab);
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

}  // namespace trainer
