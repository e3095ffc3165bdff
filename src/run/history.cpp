#include "run/history.h"

#include <cmath>

namespace trainer {

void History::add_step(const RunPosition& position, const StepResult& result) {
  if (std::isfinite(result.loss)) {
    losses_ += result.loss;
    steps_++;
  }
  if (position.step % logging_steps_ != 0 || steps_ == 0) return;
  rows_.push_back({{"epoch", epoch_of(position)},
                   {"grad_norm", result.grad_norm},
                   {"learning_rate", result.learning_rate},
                   {"loss", losses_ / static_cast<double>(steps_)},
                   {"step", position.step}});
  losses_ = 0;
  steps_ = 0;
}

void History::add_evaluation(const MetricRow& evaluation) {
  const nlohmann::json sorted = evaluation.values;  // as Transformers writes it
  rows_.push_back(nlohmann::ordered_json(sorted));
}

void History::save(RunPosition& position) const {
  position.losses_to_log = losses_;
  position.steps_to_log = steps_;
}

void History::restore(nlohmann::ordered_json rows, const RunPosition& position) {
  rows_ = std::move(rows);
  losses_ = position.losses_to_log;
  steps_ = position.steps_to_log;
}

}  // namespace trainer
