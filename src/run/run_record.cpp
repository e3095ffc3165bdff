#include "run/run_record.h"

#include <cmath>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/run/fixed_settings.h"

namespace trainer {

Position position_of(const RunPosition& saved) {
  Position position{saved.step, saved.samples_seen, saved.tokens_seen, 0};
  if (saved.dataset_size > 0) position.epoch = epoch_of(saved.samples_seen, saved.dataset_size);
  return position;
}

RunRecord::RunRecord(const Config& config, const RunLength& length, const RunPosition& begin,
                     const nlohmann::ordered_json& history_rows)
    : position(position_of(begin)),
      history(config.training.logging_steps),
      best(config.training, evaluation_data_text(config)),
      numbers(config, begin),
      evaluation_due(begin.evaluation_due),
      config_(config),
      length_(length),
      fixed_(begin.fixed),
      began_from_(begin.began_from),
      seconds_before_(begin.seconds_trained) {
  history.go_on(history_rows, begin);
  if (!best.go_on(begin)) {
    log::warning(concat("the best evaluation so far was by another metric or on other data (", begin.best_by,
                        "): from here on ", best.metric(), " decides, beginning anew"));
  }
}

void RunRecord::advance(const EffectiveBatch& batch) {
  position.step++;
  position.samples_seen += static_cast<int64_t>(batch.samples.size());
  position.tokens_seen += batch.tokens;
  position.epoch = epoch_of(position.samples_seen, length_.dataset_size);
}

RunPosition RunRecord::to_position(int64_t metrics_bytes,
                                   const std::map<std::string, int64_t>& budgets) const {
  RunPosition saved;
  saved.step = position.step;
  saved.samples_seen = position.samples_seen;
  saved.tokens_seen = position.tokens_seen;
  saved.total_steps = length_.total_steps;
  saved.dataset_size = length_.dataset_size;
  saved.metrics_bytes = metrics_bytes;
  saved.seconds_trained = seconds_trained();
  history.keep(saved);
  best.keep(saved);
  numbers.keep(saved);
  saved.evaluation_due = evaluation_due;
  saved.budgets = budgets;
  saved.fixed = fixed_;
  saved.began_from = began_from_;
  return saved;
}

TrainerState RunRecord::to_trainer_state(const std::filesystem::path& output_dir) const {
  TrainerState state;
  state.epoch = position.epoch;
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
  if (keeps_best || training.early_stopping_patience > 0) {
    state.best_metric = best.value();
    state.best_global_step = best.step();
  }
  if (keeps_best) state.best_model_checkpoint = checkpoint_path(output_dir, *best.step());
  return state;
}

double RunRecord::seconds_trained() const {
  return seconds_before_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

}  // namespace trainer
