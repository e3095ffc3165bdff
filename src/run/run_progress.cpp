#include "run/run_progress.h"

#include <cmath>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"

#include "base/seconds_since.h"
#include "run/fixed_settings.h"

namespace trainer {

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
  position.samples_seen += static_cast<int64_t>(batch.samples.size());
  position.tokens_seen += batch.tokens;
  position.dataset_size = length_.dataset_size;
}

RunPosition RunProgress::to_position(int64_t metrics_bytes,
                                     const std::map<std::string, int64_t>& budgets) const {
  RunPosition saved = position;
  saved.total_steps = length_.total_steps;
  saved.dataset_size = length_.dataset_size;
  saved.metrics_bytes = metrics_bytes;
  saved.seconds_trained += seconds_since(began_);  // of this process
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
  if (keeps_best || training.early_stopping_patience > 0) {
    state.best_metric = best.value();
    state.best_global_step = best.step();
  }
  if (keeps_best) state.best_model_checkpoint = checkpoint_path(output_dir, *best.step());
  return state;
}

}  // namespace trainer
