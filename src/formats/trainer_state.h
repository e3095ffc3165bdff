// trainer_state.json as Transformers' Trainer writes and reads it, so that tools for Hugging Face checkpoints
// can read ours. https://github.com/huggingface/transformers (src/transformers/trainer_callback.py,
// TrainerState)
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace trainer {

inline constexpr const char* kTrainerStateFile = "trainer_state.json";

// Names and meaning are those of Transformers 5.23.
struct TrainerState {
  double epoch = 0;
  int64_t global_step = 0, max_steps = 0, num_train_epochs = 0;
  int64_t logging_steps = 500, eval_steps = 500, save_steps = 500;
  std::optional<int64_t> train_batch_size;
  int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  // Rows {"epoch", "grad_norm", "learning_rate", "loss", "step"} and {"epoch", "eval_loss", ..., "step"}.
  nlohmann::ordered_json log_history = nlohmann::ordered_json::array();
  std::optional<double> best_metric;
  std::optional<int64_t> best_global_step;
  std::optional<std::string> best_model_checkpoint;
  // By the name of a callback: {"EarlyStoppingCallback": {"args": {...}, "attributes": {...}}}.
  nlohmann::ordered_json stateful_callbacks = nlohmann::ordered_json::object();
};

void write_trainer_state(const std::filesystem::path& directory, const TrainerState& state);
// Missing keys get their defaults; unknown keys are ignored. Throws FormatError when the file is missing or
// is not JSON, or when a field has the wrong type.
TrainerState read_trainer_state(const std::filesystem::path& directory);

}  // namespace trainer
