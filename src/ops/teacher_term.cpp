#include "ops/teacher_term.h"

#include <limits>

#include <ATen/ATen.h>

namespace trainer {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();
constexpr double kLeastRest = 1e-8;     // of the teacher: its numbers are not exact
constexpr double kLeastOfRest = 1e-30;  // of the model

// log p^(1/T), normalised, in rows whose entries may be -inf.
at::Tensor tempered(const at::Tensor& log_p, double temperature) {
  return (temperature == 1 ? log_p : log_p / temperature).log_softmax(1);
}

// a * b, where a is not 0; b may be infinite elsewhere.
at::Tensor where_positive(const at::Tensor& a, const at::Tensor& b) {
  return at::where(a > 0, a * b, at::zeros({}, a.options()));
}

}  // namespace

TeacherOfRows::TeacherOfRows(const LossOptions& options, const at::Tensor& weights, int64_t first,
                             int64_t count)
    : smoothing_(options.label_smoothing), soft_cap_(options.soft_cap) {
  if (!options.teacher.defined()) return;
  teacher_ = options.teacher;
  teacher_.ids = teacher_.ids.narrow(0, first, count);
  teacher_.log_probs = teacher_.log_probs.narrow(0, first, count);
  if (!teacher_.ids.is_meta()) {
    const at::Tensor is_rest = teacher_.ids < 0,
                     nothing = at::full({}, kNothing, teacher_.log_probs.options());
    rest_ = at::where(is_rest, teacher_.log_probs, nothing).amax(1, /*keepdim=*/true).to(at::kDouble);
    teacher_.log_probs = at::where(is_rest, nothing, teacher_.log_probs);
    teacher_.ids = at::where(is_rest, teacher_.ids.narrow(1, 0, 1), teacher_.ids);
  }
  if (weights.defined()) weights_ = weights.narrow(0, first, count);
}

// As much memory as look_at() takes.
void TeacherOfRows::plan(const at::Tensor& logits, bool caps) {
  const at::Tensor exps = at::empty_like(logits), copy = caps ? at::empty_like(logits) : at::Tensor();
  const at::TensorOptions fp64 = logits.options().dtype(at::kDouble);
  const int64_t rows = logits.size(0), top = teacher_.ids.size(1);
  const at::Tensor terms = at::empty({8, rows, top + 1}, fp64);
  of_tokens_ = at::empty({rows, top}, fp64);
  divergence_ = at::empty({rows}, fp64);
  of_p_ = at::empty({rows}, logits.options().dtype(at::kFloat));
}

void TeacherOfRows::look_at(at::Tensor& logits, bool capped) {
  if (!teacher_.defined()) return;
  const double most = std::numeric_limits<float>::infinity();
  at::Tensor seen = logits;
  const bool caps = soft_cap_ > 0 && !capped;
  if (logits.is_meta()) return plan(logits, caps);
  if (caps) seen = logits.div(soft_cap_).tanh_().mul_(soft_cap_);
  logits_ = seen.gather(1, teacher_.ids);
  known_ = teacher_.log_probs > -most;
  seen.scatter_(1, teacher_.ids, -most);
  const at::Tensor of_rest = seen.logsumexp(1, /*keepdim=*/true).to(at::kDouble);  // -inf: there is no rest
  if (!caps) seen.scatter_(1, teacher_.ids, logits_);

  const at::Tensor unknown = known_.logical_not();
  const at::Tensor of_tokens = logits_.to(at::kDouble).masked_fill(unknown, kNothing);
  const at::Tensor all = at::cat({of_tokens, of_rest}, 1);
  const at::Tensor log_p = all.log_softmax(1), model = tempered(log_p, teacher_.temperature);
  const at::Tensor theirs = teacher_.log_probs.to(at::kDouble);
  at::Tensor rest = (1 - theirs.exp().sum(1, /*keepdim=*/true)).clamp_min(kLeastRest).log();
  rest = at::where(rest_ > kNothing, rest_, rest).masked_fill(of_rest.eq(kNothing), kNothing);
  const at::Tensor teacher = tempered(at::cat({theirs, rest}, 1), teacher_.temperature);

  const at::Tensor p = model.exp(), q = teacher.exp();
  at::Tensor slopes;  // of the divergence, with respect to log p of the top + 1 tokens, before T
  if (teacher_.reverse) {
    const at::Tensor terms = where_positive(p, model - teacher);
    const at::Tensor sum = terms.sum(1, /*keepdim=*/true);
    divergence_ = sum.squeeze(1);
    slopes = terms - p * sum;
  } else {
    divergence_ = where_positive(q, teacher - model).sum(1);
    slopes = p - q;
  }
  slopes = slopes * (teacher_.weight * teacher_.temperature);  // weight T^2 / T
  const int64_t top = teacher_.ids.size(1);
  of_tokens_ = slopes.narrow(1, 0, top);
  of_p_ = (slopes.select(1, top) / log_p.select(1, top).exp().clamp_min(kLeastOfRest)).to(at::kFloat);
}

void TeacherOfRows::put_gradients(at::Tensor& gradient, const at::Tensor& labels, const RowTerms& terms,
                                  bool capped) const {
  if (!teacher_.defined() || gradient.is_meta()) return;
  const at::Tensor log_p = terms.log_p.to(at::kDouble).unsqueeze(1),
                   log_z = terms.log_z.to(at::kDouble).unsqueeze(1);
  at::Tensor slope = at::ones_like(log_p);
  if (terms.focal_gamma > 0) {  // focal_factors()
    const at::Tensor rest = log_p.expm1().neg(), factor = rest.clamp_min(0).pow(terms.focal_gamma);
    slope = factor - where_positive(factor / rest, terms.focal_gamma * log_p.exp() * log_p);
  }
  const at::Tensor of_label = (1 - smoothing_) * slope * terms.share;
  const at::Tensor p = (logits_.to(at::kDouble) - log_z).exp();
  at::Tensor found = p * (of_label + smoothing_ * terms.share + 2 * terms.z_loss * log_z) + of_tokens_;
  found = found - smoothing_ * terms.share / static_cast<double>(gradient.size(1));
  found =
      found - at::where(teacher_.ids.eq(labels.unsqueeze(1)), of_label, at::zeros({}, of_label.options()));
  if (weights_.defined()) found = found * weights_.unsqueeze(1);
  if (soft_cap_ > 0 && !capped) found = found * (1 - (logits_ / soft_cap_).square());
  // What is no token of the teacher stands for one that is, and keeps its place there.
  const at::Tensor first = found.narrow(1, 0, 1);
  gradient.scatter_(1, teacher_.ids, at::where(known_, found, first).to(gradient.scalar_type()));
}

void TeacherOfRows::add_to(LossParts& parts) const {
  if (!teacher_.defined()) return;
  const at::Tensor sum = (weights_.defined() ? divergence_ * weights_ : divergence_).sum().to(at::kFloat);
  parts.divergence = parts.divergence.defined() ? parts.divergence + sum : sum;
}

}  // namespace trainer
