#include "run/save_result.h"

#include <chrono>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/progress.h"
#include "trainer/base/seconds_since.h"
#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/trainer_state.h"
#include "trainer/run/metric_rows.h"
#include "trainer/run/result_types.h"

namespace trainer {
namespace {

// Replaces the last weights with those of the best evaluation. Returns whether others than the last ones are
// in the model now.
bool load_best_model(RunParts& parts, const RunProgress& progress) {
  const std::optional<int64_t> step = progress.best.step();
  if (!step)
    log::warning(concat("no evaluation gave a number for ", progress.best.metric(),
                        ": the result is that of the last step"));
  if (!step || *step == progress.position.step) return false;
  const std::filesystem::path best = checkpoint_path(parts.output.directory(), *step);
  try {
    parts.prepared.artefacts.load(parts.model(), read_checkpoint(best).path);
    log::info(concat("the result is the best model, of step ", *step, ": ", progress.best.metric(), " ",
                     *progress.best.value()));
    return true;
  } catch (const FormatError& error) {
    log::warning(concat("the best model, of step ", *step, ", cannot be read: ", error.what(),
                        "; the result is that of the last step"));
    return false;
  }
}

// The fp32 copies of optimizer.master_weights, in place of the rounded weights that the model computes with,
// where the result keeps more of them.
void take_master_weights(SavedWeights& weights, const OptimizerSnapshot& optimizer) {
  for (const auto& [name, type] : weights.types) {
    const auto kept = optimizer.tensors.find(name);
    if (kept == optimizer.tensors.end()) continue;
    if (const auto master = kept->second.find("master"); master != kept->second.end())
      weights.tensors.at(name) = master->second;
  }
}

SavedWeights weights_of_result(RunParts& parts, bool is_of_last_step) {
  SavedWeights weights = parts.prepared.artefacts.weights(parts.model());
  choose_result_types(weights, parts.prepared.artefacts, parts.config.save.result_dtype);
  if (is_of_last_step) take_master_weights(weights, parts.trainer.optimizer_state());
  return weights;
}

void save_alone(RunParts& parts, const RunProgress& progress, Checkpoints& checkpoints) {
  const Progress shown("saving the result");
  const auto begin = std::chrono::steady_clock::now();
  const std::filesystem::path& directory = parts.output.directory();
  const int64_t step = progress.position.step, metrics_bytes = parts.output.metrics_bytes();
  const bool earlier = parts.config.training.load_best_model_at_end && load_best_model(parts, progress);
  const SavedWeights weights = weights_of_result(parts, /*is_of_last_step=*/!earlier);
  try {
    parts.prepared.artefacts.save(weights, directory);
    write_trainer_state(directory, progress.to_trainer_state(directory));
    const double seconds = seconds_since(begin);
    parts.output.write(save_row(step, directory, weights.bytes(), seconds));
    parts.output.finish_curves();
    write_position(directory, progress.to_position(metrics_bytes, {}));  // now it is complete
    log::info(concat("saved ", directory.string(), "  ", bytes_string(weights.bytes()), "  in ",
                     duration_string(seconds)));
    checkpoints.mark_good(step);  // no later step will show it
  } catch (const FormatError& error) {
    throw of_family(error.family().value_or(ErrorCode::files),
                    FormatError(concat(error.what(), "; the result is not saved. ", checkpoints.last_text(),
                                       " The same command resumes from there when this is fixed")));
  }
}

}  // namespace

void save_result(RunParts& parts, const RunProgress& progress, Checkpoints& checkpoints) {
  together(
      parts.ranks,
      [&] {
        if (parts.ranks.is_first()) save_alone(parts, progress, checkpoints);
        return std::string();
      },
      Channel::phases);
}

}  // namespace trainer
