#include "run/run_progress.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/data/batching.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/run/run_length.h"

#include "base/progress.h"
#include "observe/time_left.h"
#include "run/fixed_settings.h"

namespace trainer {
namespace {

const std::string kPrefix = "eval_";

std::string with_prefix(const std::string& name) { return name.starts_with(kPrefix) ? name : kPrefix + name; }

}  // namespace

RunProgress::RunProgress(const Config& config, const RunLength& length, const RunPosition& from,
                         const nlohmann::ordered_json& history_rows, bool writes)
    : position(from),
      history(config.training.logging_steps),
      best(config.training, evaluation_data_text(config)),
      numerics(writes ? std::filesystem::path(config.output_dir) / "bad_steps.jsonl" : "",
               config.training.max_bad_steps, from),
      config_(config),
      length_(length) {
  history.restore(history_rows, from);
  if (!best.restore(from)) {
    log::warning(concat("the best evaluation so far was by another metric or on other data (", from.best_by,
                        "): from here on ", best.metric(), " decides, starting from the beginning"));
  }
}

void RunProgress::advance(const EffectiveBatch& batch) {
  position.step++;
  position.samples_seen += batch.rows();
  position.tokens_seen += batch.tokens;
  position.dataset_size = length_.dataset_size;
}

RunPosition RunProgress::to_position(int64_t metrics_bytes,
                                     const std::map<std::string, int64_t>& budgets) const {
  RunPosition saved = position;
  saved.total_steps = length_.total_steps;
  saved.dataset_size = length_.dataset_size;
  saved.metrics_bytes = metrics_bytes;
  saved.seconds_trained += seconds_since(began_);  // seconds of this process
  history.save(saved);
  best.save(saved);
  numerics.save(saved);
  saved.budgets = budgets;
  return saved;
}

TrainerState RunProgress::to_trainer_state(const std::filesystem::path& output_dir) const {
  TrainerState state;
  state.epoch = epoch_of(position);
  state.global_step = position.step;
  state.max_steps = length_.total_steps;
  state.num_train_epochs =
      static_cast<int64_t>(std::ceil(epoch_of(length_.total_steps, length_.steps_per_epoch)));
  state.logging_steps = config_.training.logging_steps;
  state.eval_steps = config_.training.eval_steps;
  state.save_steps = config_.save.steps;
  state.train_batch_size = config_.training.batch_size;
  state.num_input_tokens_seen = position.tokens_seen;
  state.log_history = history.rows();
  const TrainingConfig& training = config_.training;
  const bool keeps_best = training.load_best_model_at_end && best.step();
  // The checkpoint of this step is being written.
  std::filesystem::path best_path;
  if (keeps_best)
    best_path = *best.step() == position.step ? checkpoint_path(output_dir, position.step)
                                              : kept_checkpoint(output_dir, position, *best.step());
  if (keeps_best || training.early_stopping_patience > 0) {
    state.best_metric = best.value();
    state.best_global_step = best.step();
  }
  if (!best_path.empty()) state.best_model_checkpoint = best_path;
  return state;
}

std::filesystem::path kept_checkpoint(const std::filesystem::path& output_dir, const RunPosition& position,
                                      int64_t step) {
  std::error_code ignored;
  std::vector<std::filesystem::path> folders{output_dir};
  if (!position.began_from.empty())
    folders.push_back(std::filesystem::path(position.began_from).parent_path());
  for (const auto& folder : folders) {
    std::filesystem::path path = checkpoint_path(folder, step);
    if (std::filesystem::exists(path / kManifestFile, ignored)) return path;
  }
  return {};
}

bool History::is_evaluation(const nlohmann::ordered_json& row) { return !row.contains("learning_rate"); }

void History::Kept::add(int64_t step) {
  if (count > 1) least = std::min(least, last - before);
  before = std::exchange(last, step);
  count++;
}

void History::add_step(const RunPosition& position, const StepResult& result) {
  if (std::isfinite(result.loss)) {
    losses_ += result.loss;
    steps_++;
  }
  const bool is_due = position.step % logging_steps_ == 0 &&
                      position.step - steps_kept_.last >= steps_kept_.distance() && steps_ > 0;
  if (!is_due) return;
  rows_.push_back({{"epoch", epoch_of(position)},
                   {"grad_norm", result.grad_norm},
                   {"learning_rate", result.learning_rate},
                   {"loss", losses_ / static_cast<double>(steps_)},
                   {"step", position.step}});
  losses_ = 0;
  steps_ = 0;
  steps_kept_.add(position.step);
  thin(/*evaluations=*/false);
}

// The newest is always there. If it follows too soon on the one before, the next one takes its place.
void History::add_evaluation(const MetricRow& evaluation) {
  const Kept& kept = evaluations_kept_;
  if (kept.count > 1 && kept.last - kept.before < kept.distance()) drop_last_evaluation();
  const nlohmann::json sorted = evaluation.values;  // as Transformers writes it
  rows_.push_back(nlohmann::ordered_json(sorted));
  evaluations_kept_.add(evaluation.values.value("step", int64_t{0}));
  thin(/*evaluations=*/true);
}

void History::drop_last_evaluation() {
  size_t last = rows_.size() - 1;
  while (!is_evaluation(rows_[last])) last--;
  rows_.erase(last);
  evaluations_kept_ = kept_in_rows(/*of_evaluations=*/true);
}

// Leaves out every second row of a kind, if there are too many. The row after one of a step gets the mean of
// both losses, as it now stands for the steps of both.
void History::thin(bool evaluations) {
  Kept& kept = evaluations ? evaluations_kept_ : steps_kept_;
  while (kept.count >= kept.most) {
    nlohmann::ordered_json left = nlohmann::ordered_json::array();
    nlohmann::ordered_json first;  // of a pair
    for (auto& row : rows_) {
      if (is_evaluation(row) != evaluations) {
        left.push_back(std::move(row));
      } else if (first.is_null()) {
        first = std::move(row);
      } else {
        if (!evaluations)
          row["loss"] = (row_number(first, "loss").value_or(0) + row_number(row, "loss").value_or(0)) / 2;
        left.push_back(std::move(row));
        first = nullptr;
      }
    }
    if (!first.is_null()) left.push_back(std::move(first));  // the last of an odd number
    rows_ = std::move(left);
    kept = kept_in_rows(evaluations);
  }
}

History::Kept History::kept_in_rows(bool of_evaluations) const {
  Kept kept{.most = of_evaluations ? kMostEvaluations : kMostSteps};
  for (const auto& row : rows_)
    if (is_evaluation(row) == of_evaluations) kept.add(row.value("step", int64_t{0}));
  return kept;
}

void History::save(RunPosition& position) const {
  position.losses_to_log = losses_;
  position.steps_to_log = steps_;
}

// An earlier version kept all rows.
void History::restore(nlohmann::ordered_json rows, const RunPosition& position) {
  rows_ = std::move(rows);
  losses_ = position.losses_to_log;
  steps_ = position.steps_to_log;
  for (const bool evaluations : {false, true}) {
    (evaluations ? evaluations_kept_ : steps_kept_) = kept_in_rows(evaluations);
    thin(evaluations);
  }
}

BestMetric::BestMetric(const TrainingConfig& config, const std::string& data)
    : metric_(with_prefix(config.metric_for_best_model)),
      data_(data),
      lower_is_better_(metric_ == "eval_loss" || metric_ == "eval_perplexity" || metric_ == "eval_ter" ||
                       metric_ == "eval_mae"),
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
  const bool better = is_better(value);
  without_gain_ = better ? 0 : without_gain_ + 1;
  if (!better) return false;
  value_ = value;
  step_ = evaluation.values.at("step").get<int64_t>();
  return true;
}

bool BestMetric::is_better(double value) const {
  return !std::isnan(value) && (!value_ || (lower_is_better_ ? value < *value_ : value > *value_));
}

void BestMetric::choose(const nlohmann::ordered_json& history,
                        const std::function<bool(int64_t step)>& is_there) {
  value_.reset();
  step_.reset();
  for (const auto& row : history) {
    const auto value = row_number(row, metric_.c_str());
    const auto step = row.value("step", int64_t{0});
    if (!value || !is_better(*value) || !is_there(step)) continue;
    value_ = value;
    step_ = step;
  }
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

RunLength run_length(const Config& config, int64_t dataset_size, const RunPosition& begin) {
  const int64_t batch = config.effective_batch_size();
  RunLength length{dataset_size, steps_per_epoch(dataset_size, batch), config.training.max_steps};
  if (length.total_steps <= 0) {
    const auto all = static_cast<int64_t>(
        std::ceil(config.training.num_train_epochs * static_cast<double>(length.steps_per_epoch)));
    // Equals begin.step, unless the data or the effective batch changed when the run resumed.
    const int64_t done = begin.samples_seen / dataset_size * length.steps_per_epoch +
                         steps_per_epoch(begin.samples_seen % dataset_size, batch);
    length.total_steps = begin.step + std::max<int64_t>(all - done, 0);
  }
  if (length.total_steps <= 0) throw DataError("the training data and configuration give no training steps");
  return length;
}

bool is_due(IntervalStrategy strategy, int64_t steps, const RunPosition& position, const RunLength& length) {
  switch (strategy) {
    case IntervalStrategy::no:
      return false;
    case IntervalStrategy::steps:
      return position.step % steps == 0;
    case IntervalStrategy::epoch:
      return position.samples_seen % length.dataset_size == 0;
  }
  return false;
}

double epoch_of(int64_t samples_seen, int64_t dataset_size) {
  return static_cast<double>(samples_seen) / static_cast<double>(dataset_size);
}

double epoch_of(const RunPosition& position) {
  return position.dataset_size > 0 ? epoch_of(position.samples_seen, position.dataset_size) : 0;
}

}  // namespace trainer
