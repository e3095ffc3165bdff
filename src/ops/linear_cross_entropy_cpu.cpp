// The loss and its gradients on the CPU: chunks of logits, and the passes over a row of them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/vector_math.h"
#include "device/op.h"
#include "ops/linear_cross_entropy.h"
#include "ops/matmul.h"
#include "ops/teacher_term.h"

namespace trainer {
namespace {

// The exponentials of a row are added up in parts of this size, and the parts in fp64.
constexpr int64_t kSummedAtOnce = 1024;

template <class T>
TRAINER_VECTORISED float largest(const T* __restrict__ x, int64_t count) {
  float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < count; i++) {
    const auto value = static_cast<float>(x[i]);
    most = value > most ? value : most;
  }
  return most;
}

template <class T>
TRAINER_VECTORISED float sum_of_exps(const T* __restrict__ x, float most, int64_t count) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; i++) sum += fast_exp(static_cast<float>(x[i]) - most);
  return sum;
}

template <class T>
TRAINER_VECTORISED float sum_of(const T* __restrict__ x, int64_t count) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; i++) sum += static_cast<float>(x[i]);
  return sum;
}

template <class T>
TRAINER_VECTORISED void to_gradient(T* __restrict__ x, float most, float inverse, float less, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    x[i] = static_cast<T>(fast_exp(static_cast<float>(x[i]) - most) * inverse - less);
}

template <class T, class Sum>
double in_parts(const T* row, int64_t count, const Sum& sum) {
  double all = 0.0;
  for (int64_t i = 0; i < count; i += kSummedAtOnce) all += sum(row + i, std::min(kSummedAtOnce, count - i));
  return all;
}

// RowTerms of one row.
struct TermsOfRow {
  double z_loss, focal_gamma, share, of_p;
  float weight;
  float *log_p, *log_z;  // nullptr: not asked for
};

template <class T>
float row_loss(T* row, int64_t label, int64_t vocab, double smoothing, bool want_gradient,
               const TermsOfRow& terms) {
  const float most = largest(row, vocab);
  const double sum =
      in_parts(row, vocab, [&](const T* part, int64_t count) { return sum_of_exps(part, most, count); });
  const double log_normaliser = static_cast<double>(most) + std::log(sum);
  auto of_label = static_cast<float>(row[label]);
  double loss = log_normaliser - (1 - smoothing) * static_cast<double>(of_label);
  if (smoothing > 0) loss -= smoothing / static_cast<double>(vocab) * in_parts(row, vocab, sum_of<T>);
  double focal_slope = 1;
  if (terms.focal_gamma > 0) {
    const double log_p = static_cast<double>(of_label) - log_normaliser;
    const FocalFactors focal = focal_factors(log_p, terms.focal_gamma);
    loss += (1 - smoothing) * (1 - focal.loss) * log_p;
    focal_slope = focal.slope;
  }
  loss *= terms.share;
  if (terms.z_loss > 0) loss += terms.z_loss * log_normaliser * log_normaliser;
  if (terms.log_p != nullptr)
    *terms.log_p = static_cast<float>(static_cast<double>(of_label) - log_normaliser);
  if (terms.log_z != nullptr) *terms.log_z = static_cast<float>(log_normaliser);
  const auto weight = static_cast<double>(terms.weight);
  if (want_gradient) {
    // log(Z)^2 has the slope 2 log(Z) p.
    const double of_one = terms.share * (1 - smoothing) * focal_slope;
    double of_p = terms.focal_gamma > 0 ? of_one + terms.share * smoothing : terms.share;
    if (terms.z_loss > 0) of_p += 2 * terms.z_loss * log_normaliser;
    const auto inverse = static_cast<float>(weight * (of_p + terms.of_p) / sum);
    const auto less = static_cast<float>(weight * terms.share * smoothing / static_cast<double>(vocab));
    to_gradient(row, most, inverse, less, vocab);
    to_gradient(&of_label, most, inverse, less, 1);  // not rounded to T before 1 is taken from it
    row[label] = static_cast<T>(of_label - static_cast<float>(weight * of_one));
  }
  return static_cast<float>(weight * loss);
}

// The values of a tensor that may be undefined; nullptr then.
float* values_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  TORCH_CHECK(tensor.is_contiguous() && tensor.scalar_type() == at::kFloat, "softmax_loss: terms of rows");
  return tensor.mutable_data_ptr<float>();
}

at::Tensor softmax_loss_cpu(at::Tensor& logits, const at::Tensor& labels_, double smoothing,
                            bool want_gradient, const RowTerms& of_rows) {
  const int64_t rows = logits.size(0), vocab = logits.size(1);
  TORCH_CHECK(logits.is_contiguous() && labels_.numel() == rows, "softmax_loss: logits ", logits.sizes(),
              ", labels ", labels_.sizes());
  at::Tensor losses = at::empty({rows}, logits.options().dtype(at::kFloat));
  if (logits.is_meta()) return losses;
  const at::Tensor labels = labels_.contiguous();
  const int64_t* label = labels.const_data_ptr<int64_t>();
  auto* const loss = losses.mutable_data_ptr<float>();
  const float* const weight = values_of(of_rows.weights);
  float *const to_log_p = values_of(of_rows.log_p), *const to_log_z = values_of(of_rows.log_z);
  const float* const of_p = values_of(of_rows.of_p);
  with_element_type(logits, "softmax_loss", [&]<class T>() {
    T* const row = logits.mutable_data_ptr<T>();
    at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        TORCH_CHECK(label[i] >= 0 && label[i] < vocab, "softmax_loss: label ", label[i], " of ", vocab);
        const TermsOfRow terms{of_rows.z_loss,
                               of_rows.focal_gamma,
                               of_rows.share,
                               of_p != nullptr ? static_cast<double>(of_p[i]) : 0.0,
                               weight != nullptr ? weight[i] : 1.0f,
                               to_log_p != nullptr ? to_log_p + i : nullptr,
                               to_log_z != nullptr ? to_log_z + i : nullptr};
        loss[i] = row_loss(row + i * vocab, label[i], vocab, smoothing, want_gradient, terms);
      }
    });
  });
  return losses;
}

constexpr Op kSoftmaxLoss{"trainer::softmax_loss", softmax_loss_cpu};

// Caps the logits in place. Returns the slope of each, 1 - tanh^2, if requested.
at::Tensor cap(at::Tensor& logits, double soft_cap, bool want_slope) {
  logits.div_(soft_cap).tanh_();
  const at::Tensor slope = want_slope ? logits.square().neg_().add_(1) : at::Tensor();
  logits.mul_(soft_cap);
  return slope;
}

}  // namespace

at::Tensor softmax_loss(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool want_gradient,
                        const RowTerms& terms) {
  return kSoftmaxLoss(logits, labels, smoothing, want_gradient, terms);
}

LossParts loss_parts_cpu(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
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
  const bool in_bf16 = soft_cap == 0 && !options.teacher.defined() && hidden.scalar_type() == at::kBFloat16 &&
                       suits_builtin(hidden, weight.t());
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
    RowTerms of_rows = terms.narrow(row, rows);
    TeacherOfRows taught(options, terms.all.weights, row, rows);
    taught.look_at(logits, /*capped=*/true);
    of_rows.of_p = taught.of_p();
    out.loss += softmax_loss(logits, y, smoothing, wanted.any(), of_rows).sum();
    if (wanted.any()) taught.put_gradients(logits, y, of_rows, /*capped=*/true);
    taught.add_to(out);
    if (wanted.any() && slope.defined()) logits.mul_(slope);
    const at::Tensor g_logits = wanted.any() ? logits.to(input.scalar_type()) : at::Tensor();
    if (wanted.hidden) out.g_hidden.narrow(0, row, rows).copy_(times(g_logits, weight));
    if (wanted.weight) times_into(out.g_weight, g_logits.t(), input);
  }
  if (out.g_weight.defined()) out.g_weight = out.g_weight.to(weight.scalar_type());
  terms.finish(out);
  return out;
}

}  // namespace trainer
