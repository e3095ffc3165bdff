#include "run/best_metric.h"

#include <cmath>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

const std::string kPrefix = "eval_";

std::string with_prefix(const std::string& name) { return name.starts_with(kPrefix) ? name : kPrefix + name; }

}  // namespace

BestMetric::BestMetric(const TrainingConfig& config, const std::string& data)
    : metric_(with_prefix(config.metric_for_best_model)),
      data_(data),
      lower_is_better_(metric_ == "eval_loss" || metric_ == "eval_perplexity"),
      patience_(config.early_stopping_patience) {}

bool BestMetric::add(const MetricRow& evaluation) {
  const auto found = evaluation.values.find(metric_);
  if (found == evaluation.values.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : evaluation.values.items()) {
      if (name.starts_with(kPrefix)) names.push_back(name.substr(kPrefix.size()));
    }
    throw ConfigError(
        concat("training.metric_for_best_model: the evaluation has no ", metric_, "; it has ", join(names)));
  }
  const double value = found->get<double>();
  const bool better =
      !std::isnan(value) && (!value_ || (lower_is_better_ ? value < *value_ : value > *value_));
  without_gain_ = better ? 0 : without_gain_ + 1;
  if (!better) return false;
  value_ = value;
  step_ = evaluation.values.at("step").get<int64_t>();
  return true;
}

void BestMetric::save(RunPosition& position) const {
  position.best_metric = value_;
  position.best_step = step_;
  position.evaluations_without_gain = without_gain_;
  position.best_by = concat(metric_, " on ", data_);
}

bool BestMetric::restore(const RunPosition& position) {
  const bool says_something = position.best_metric || position.evaluations_without_gain > 0;
  if (says_something && position.best_by != concat(metric_, " on ", data_)) return false;
  value_ = position.best_metric;
  step_ = position.best_step;
  without_gain_ = position.evaluations_without_gain;
  return true;
}

}  // namespace trainer
