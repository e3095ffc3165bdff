#include "objectives/objective.h"

#include <ATen/ATen.h>

#include "trainer/data/batching.h"

namespace trainer {
namespace {

// The name of the divergence from a teacher in the metrics.
constexpr const char* kTeacher = "teacher_kl";

// Also of the labels of whole texts: the head knows whether they are classes or numbers
// (src/nn/score_head.h).
class CrossEntropy : public Objective {
 public:
  explicit CrossEntropy(const Config& config) : training_(config.training), objective_(config.objective) {}

  // In evaluations the loss is that of the labels alone.
  LossOptions options(Pass pass) const override {
    LossOptions options;
    options.count_correct = pass == Pass::evaluation;
    options.teacher.weight = pass == Pass::evaluation ? 0 : objective_.teacher_weight;
    options.teacher.temperature = objective_.temperature;
    options.teacher.reverse = objective_.divergence == "reverse";
    if (pass == Pass::evaluation) return options;
    options.label_smoothing = training_.label_smoothing;
    options.z_loss = training_.z_loss;
    options.focal_gamma = training_.focal_gamma;
    return options;
  }

  double normaliser(std::span<const Sample> samples, bool encoder_decoder) const override {
    double sum = 0;
    for (const Sample& sample : samples) sum += supervised_weight(sample, encoder_decoder);
    return sum;
  }

  std::vector<Term> terms(Pass pass) const override {
    std::vector<Term> terms{{"loss"}};
    if (pass == Pass::evaluation) terms.push_back({"token_accuracy", /*over_tokens=*/true});
    if (has_z_loss(pass)) terms.push_back({"z_loss"});
    if (has_teacher(pass)) terms.push_back({kTeacher});
    return terms;
  }

  std::vector<at::Tensor> sums(const LossSum& out, Pass pass) const override {
    std::vector<at::Tensor> sums{out.loss};
    if (pass == Pass::evaluation) sums.push_back(out.correct);
    if (has_z_loss(pass)) sums.push_back(out.z_loss);
    if (has_teacher(pass)) sums.push_back(out.divergence);
    return sums;
  }

 private:
  bool has_z_loss(Pass pass) const { return pass == Pass::training && training_.z_loss > 0; }
  // What a file says is of the training data.
  bool has_teacher(Pass pass) const {
    return objective_.distills() && (pass == Pass::training || !objective_.teacher.empty());
  }

  TrainingConfig training_;
  ObjectiveConfig objective_;
};

// What a step of answers (answers.h) computes of each token: its log-probability. The loss of a row is not a
// sum of its tokens' losses, and is reported by AnswersLoss.
class OfAnswers : public Objective {
 public:
  explicit OfAnswers(const ObjectiveConfig& config) : answers_(config.judges() ? 1 : 2) {}

  LossOptions options(Pass) const override { return {.log_probabilities = true}; }
  double normaliser(std::span<const Sample> samples, bool) const override {
    return static_cast<double>(samples.size()) / answers_;
  }
  std::vector<Term> terms(Pass) const override { return {{"loss"}}; }
  std::vector<at::Tensor> sums(const LossSum& out, Pass) const override { return {out.loss}; }

 private:
  double answers_;  // of a row
};

}  // namespace

TermSums::TermSums(const Objective& objective, Pass pass, at::Device device)
    : objective_(&objective), pass_(pass) {
  for (size_t i = 0; i < objective.terms(pass).size(); i++)
    values_.push_back(at::zeros({}, at::TensorOptions().device(device).dtype(at::kDouble)));
}

void TermSums::add(const LossSum& micro_batch) {
  const std::vector<at::Tensor> sums = objective_->sums(micro_batch, pass_);
  for (size_t i = 0; i < sums.size(); i++) values_[i] += sums[i].detach();
}

Means means_of(const Objective& objective, Pass pass, const std::vector<double>& sums, double normaliser,
               int64_t supervised_tokens) {
  Means means;
  for (const Term& term : objective.terms(pass)) {
    const double divisor = term.over_tokens ? static_cast<double>(supervised_tokens) : normaliser;
    means.emplace_back(term.name, mean_of(sums.at(means.size()), divisor));
  }
  return means;
}

std::unique_ptr<Objective> make_objective(const Config& config) {
  if (config.objective.compares()) return std::make_unique<OfAnswers>(config.objective);
  return std::make_unique<CrossEntropy>(config);
}

}  // namespace trainer
