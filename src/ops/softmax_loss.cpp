#include "ops/softmax_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include "base/vector_math.h"
#include "device/operators.h"

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
  double z_loss;
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
  if (terms.z_loss > 0) loss += terms.z_loss * log_normaliser * log_normaliser;
  if (terms.log_p != nullptr)
    *terms.log_p = static_cast<float>(static_cast<double>(of_label) - log_normaliser);
  if (terms.log_z != nullptr) *terms.log_z = static_cast<float>(log_normaliser);
  const auto weight = static_cast<double>(terms.weight);
  if (want_gradient) {
    // log(Z)^2 has the slope 2 log(Z) p.
    const double of_p = terms.z_loss > 0 ? 1 + 2 * terms.z_loss * log_normaliser : 1.0;
    const auto inverse = static_cast<float>(weight * of_p / sum);
    const auto less = static_cast<float>(weight * smoothing / static_cast<double>(vocab));
    to_gradient(row, most, inverse, less, vocab);
    to_gradient(&of_label, most, inverse, less, 1);  // not rounded to T before 1 is taken from it
    row[label] = static_cast<T>(of_label + static_cast<float>(weight * (smoothing - 1)));
  }
  return static_cast<float>(weight * loss);
}

// The values of a tensor that may be undefined; nullptr then.
float* values_of(const std::optional<at::Tensor>& tensor) {
  if (!tensor || !tensor->defined()) return nullptr;
  TORCH_CHECK(tensor->is_contiguous() && tensor->scalar_type() == at::kFloat, "softmax_loss: terms of rows");
  return tensor->mutable_data_ptr<float>();
}

at::Tensor softmax_loss_host(const at::Tensor& logits, const at::Tensor& labels_, double smoothing,
                             bool want_gradient, double z_loss, const std::optional<at::Tensor>& weights,
                             const std::optional<at::Tensor>& log_p, const std::optional<at::Tensor>& log_z) {
  const int64_t rows = logits.size(0), vocab = logits.size(1);
  TORCH_CHECK(logits.is_contiguous() && labels_.numel() == rows, "softmax_loss: logits ", logits.sizes(),
              ", labels ", labels_.sizes());
  at::Tensor losses = at::empty({rows}, logits.options().dtype(at::kFloat));
  if (logits.is_meta()) return losses;
  const at::Tensor labels = labels_.contiguous();
  const int64_t* label = labels.const_data_ptr<int64_t>();
  auto* const loss = losses.mutable_data_ptr<float>();
  const float* const weight = values_of(weights);
  float *const to_log_p = values_of(log_p), *const to_log_z = values_of(log_z);
  with_element_type(logits, "softmax_loss", [&]<class T>() {
    T* const row = logits.mutable_data_ptr<T>();
    at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        TORCH_CHECK(label[i] >= 0 && label[i] < vocab, "softmax_loss: label ", label[i], " of ", vocab);
        const TermsOfRow terms{z_loss, weight != nullptr ? weight[i] : 1.0f,
                               to_log_p != nullptr ? to_log_p + i : nullptr,
                               to_log_z != nullptr ? to_log_z + i : nullptr};
        loss[i] = row_loss(row + i * vocab, label[i], vocab, smoothing, want_gradient, terms);
      }
    });
  });
  return losses;
}

at::Tensor softmax_loss_composite(const at::Tensor& logits_, const at::Tensor& labels, double smoothing,
                                  bool want_gradient, double z_loss, const std::optional<at::Tensor>& weights,
                                  const std::optional<at::Tensor>& log_p,
                                  const std::optional<at::Tensor>& log_z) {
  at::Tensor logits = logits_;
  const int64_t vocab = logits.size(1);
  const at::Tensor index = labels.unsqueeze(1);
  const at::Tensor log_normaliser = at::logsumexp(logits, {1}, /*keepdim=*/true);  // [rows, 1]
  at::Tensor losses = (log_normaliser - logits.gather(1, index) * (1 - smoothing)).squeeze(1);
  if (smoothing > 0) losses -= logits.sum(1) * (smoothing / static_cast<double>(vocab));
  if (z_loss > 0) losses += log_normaliser.square().mul_(z_loss).squeeze(1);
  if (log_p && log_p->defined()) log_p->copy_((logits.gather(1, index) - log_normaliser).squeeze(1));
  if (log_z && log_z->defined()) log_z->copy_(log_normaliser.squeeze(1));
  const bool weighted = weights && weights->defined();
  if (weighted) losses *= *weights;
  if (want_gradient) {
    logits.sub_(log_normaliser).exp_();
    if (z_loss > 0) logits.mul_(log_normaliser * (2 * z_loss) + 1);
    if (smoothing > 0) logits.sub_(smoothing / static_cast<double>(vocab));
    logits.scatter_add_(1, index, at::full({1, 1}, smoothing - 1, logits.options()).expand_as(index));
    if (weighted) logits.mul_(weights->unsqueeze(1));
  }
  return losses;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(trainer, library) {
  library.def(
      "softmax_loss(Tensor(a!) logits, Tensor labels, float smoothing, bool want_gradient, float z_loss=0.0, "
      "Tensor? weights=None, Tensor(b!)? log_p=None, Tensor(c!)? log_z=None) -> Tensor");
}
TORCH_LIBRARY_IMPL(trainer, CPU, library) { library.impl("softmax_loss", softmax_loss_host); }
TORCH_LIBRARY_IMPL(trainer, CUDA, library) { library.impl("softmax_loss", softmax_loss_composite); }
TORCH_LIBRARY_IMPL(trainer, Meta, library) {
  library.impl("softmax_loss", ByTarget<softmax_loss_host, softmax_loss_composite>::call);
}

at::Tensor softmax_loss(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool want_gradient,
                        const RowTerms& terms) {
  using Maybe = const std::optional<at::Tensor>&;
  static const Operator<at::Tensor(const at::Tensor&, const at::Tensor&, double, bool, double, Maybe, Maybe,
                                   Maybe)>
      op("trainer::softmax_loss");
  const auto maybe = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return op(logits, labels, smoothing, want_gradient, terms.z_loss, maybe(terms.weights), maybe(terms.log_p),
            maybe(terms.log_z));
}

}  // namespace trainer
