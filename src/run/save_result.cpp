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

namespace trainer {
namespace {

// Replaces the last weights with those of the best evaluation.
void load_best_model(RunParts& parts, const RunProgress& progress) {
  const std::optional<int64_t> step = progress.best.step();
  if (!step)
    log::warning(concat("no evaluation gave a number for ", progress.best.metric(),
                        ": the result is that of the last step"));
  if (!step || *step == progress.position.step) return;
  const std::filesystem::path best = checkpoint_path(parts.output.directory(), *step);
  try {
    parts.prepared.artefacts.load(parts.model(), read_checkpoint(best).path);
    log::info(concat("the result is the best model, of step ", *step, ": ", progress.best.metric(), " ",
                     *progress.best.value()));
  } catch (const FormatError& error) {
    log::warning(concat("the best model, of step ", *step, ", cannot be read: ", error.what(),
                        "; the result is that of the last step"));
  }
}

void save_alone(RunParts& parts, const RunProgress& progress, Checkpoints& checkpoints) {
  const Progress shown("saving the result");
  const auto begin = std::chrono::steady_clock::now();
  const std::filesystem::path& directory = parts.output.directory();
  const int64_t step = progress.position.step, metrics_bytes = parts.output.metrics_bytes();
  if (parts.config.training.load_best_model_at_end) load_best_model(parts, progress);
  const SavedWeights weights = parts.prepared.artefacts.weights(parts.model());
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
    throw FormatError(concat(error.what(), "; the result is not saved. ", checkpoints.last_text(),
                             " The same command resumes from there when this is fixed"));
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
