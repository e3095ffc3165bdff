#include "formats/trainer_state.h"

#include "trainer/base/files.h"

#include "formats/json_fields.h"
#include "formats/json_file.h"

namespace trainer {
namespace {

// Lists the fields in the order of the file, sorted by name; `State` is const when writing.
template <class Fields, class State>
void state_fields(Fields& fields, State& state) {
  fields.field("best_global_step", state.best_global_step);
  fields.field("best_metric", state.best_metric);
  fields.field("best_model_checkpoint", state.best_model_checkpoint);
  fields.field("epoch", state.epoch);
  fields.field("eval_steps", state.eval_steps);
  fields.field("global_step", state.global_step);
  if constexpr (std::is_const_v<State>) {
    fields.field("is_hyper_param_search", false);
    fields.field("is_local_process_zero", true);
    fields.field("is_world_process_zero", true);
  }
  fields.field("log_history", state.log_history);
  fields.field("logging_steps", state.logging_steps);
  fields.field("max_steps", state.max_steps);
  fields.field("num_input_tokens_seen", state.num_input_tokens_seen);
  fields.field("num_train_epochs", state.num_train_epochs);
  fields.field("save_steps", state.save_steps);
  fields.field("stateful_callbacks", state.stateful_callbacks);
  fields.field("total_flos", state.total_flos);
  fields.field("train_batch_size", state.train_batch_size);
  if constexpr (std::is_const_v<State>) {
    fields.field("trial_name", std::optional<std::string>());
    fields.field("trial_params", std::optional<std::string>());
  }
}

}  // namespace

void write_trainer_state(const std::filesystem::path& directory, const TrainerState& state) {
  JsonFieldWriter writer;
  state_fields(writer, state);
  // ASCII, as Python's json writes it. A path need not be UTF-8.
  write_atomically(directory / kTrainerStateFile, ascii_json(writer.object(), 2) + "\n");
}

TrainerState read_trainer_state(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kTrainerStateFile;
  const std::string where = path.string();
  const auto object = read_ordered_json_object(path);
  TrainerState state;
  const JsonReader reader(object, where);
  state_fields(reader, state);
  return state;
}

}  // namespace trainer
