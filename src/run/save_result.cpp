#include "run/save_result.h"

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/model_directory.h"
#include "trainer/run/metric_rows.h"

#include "base/progress.h"
#include "base/seconds_since.h"
#include "formats/trainer_state.h"
#include "models/tensor_views.h"
#include "run/result_types.h"

namespace trainer {
namespace {

// Replaces the last weights with those of the best evaluation, as far as this rank has them. Returns the
// checkpoint they come from, or nothing if the last ones stay.
std::optional<std::filesystem::path> load_best_model(RunParts& parts, const RunProgress& progress) {
  const std::optional<int64_t> step = progress.best.step();
  if (!step)
    log::warning(concat("no evaluation gave a number for ", progress.best.metric(),
                        ": the result is that of the last step"));
  if (!step || *step == progress.position.step) return std::nullopt;
  const std::filesystem::path best = checkpoint_path(parts.output.directory(), *step);
  try {
    parts.prepared.artefacts.load(parts.model(), read_checkpoint(best).path);
    log::info(concat("the result is the best model, of step ", *step, ": ", progress.best.metric(), " ",
                     *progress.best.value()));
    return best;
  } catch (const FormatError& error) {
    log::warning(concat("the best model, of step ", *step, ", cannot be read: ", error.what(),
                        "; the result is that of the last step"));
    return std::nullopt;
  }
}

// Of the result, on the rank that saves it.
struct Result {
  SavedWeights weights;
  bool is_of_last_step = false;
};

// Weights that other ranks have are on meta, unless they are in a file.
Result make_result(RunParts& parts, const RunProgress& progress) {
  std::optional<std::filesystem::path> earlier;
  if (parts.config.training.load_best_model_at_end) earlier = load_best_model(parts, progress);
  Result result{parts.prepared.artefacts.weights(parts.model()), !earlier};
  if (!earlier || parts.trainer.divided().empty() || parts.prepared.artefacts.adapter) return result;
  const ModelWeights stored = read_model_weights(*earlier);
  for (auto& [name, tensor] : result.weights.tensors) {
    if (tensor.is_meta())
      tensor = mapped_tensor(stored.tensors.at(name), stored.mapping_of(name), /*counted=*/false);
  }
  return result;
}

// Collects the trained weights of other ranks on rank 0, in main memory.
void collect_divided(const RunParts& parts, SavedWeights& weights) {
  const Ranks& ranks = parts.ranks;
  for (const TrainedParameter& parameter : parts.trainer.parameters()) {
    const auto owner = parts.trainer.divided().find(parameter.name);
    if (owner == parts.trainer.divided().end() || owner->second == 0) continue;
    const at::Tensor& value = parameter.value;
    const at::Tensor values = ranks.rank() == owner->second
                                  ? value.detach().cpu().contiguous()
                                  : at::empty(value.sizes(), at::TensorOptions().dtype(value.scalar_type()));
    ranks.copy_from(owner->second, values);
    if (ranks.is_first()) weights.tensors.at(parameter.name) = values;
  }
}

using Masters = std::map<std::string, at::Tensor>;

// Takes the fp32 copies of optimizer.master_weights in place of the rounded weights that the model computes
// with, where the result keeps more of them.
void take_masters(SavedWeights& weights, const Masters& masters) {
  for (const auto& [name, type] : weights.types) {
    if (const auto master = masters.find(name); master != masters.end())
      weights.tensors.at(name) = master->second;
  }
}

// Returns those of all ranks, on rank 0; the others send theirs.
Masters collect_masters(const RunParts& parts) {
  Masters masters;
  for (const auto& [name, kept] : parts.trainer.optimizer_state().tensors) {
    if (const auto master = kept.find("master"); master != kept.end()) masters[name] = master->second;
  }
  const Ranks& ranks = parts.ranks;
  if (parts.trainer.owners().empty() || !parts.config.optimizer.master_weights) return masters;
  for (const TrainedParameter& parameter : parts.trainer.parameters()) {
    const int64_t owner = parts.trainer.owners().at(parameter.name);
    if (owner == 0 || parameter.value.scalar_type() == at::kFloat) continue;
    const at::Tensor values = ranks.rank() == owner
                                  ? masters.at(parameter.name).cpu().contiguous()
                                  : at::empty(parameter.value.sizes(), at::TensorOptions().dtype(at::kFloat));
    ranks.copy_from(owner, values);
    if (ranks.is_first()) masters[parameter.name] = values;
  }
  return masters;
}

void save_alone(RunParts& parts, const RunProgress& progress, Checkpoints& checkpoints,
                const SavedWeights& weights) {
  const Progress shown("saving the result");
  const auto begin = std::chrono::steady_clock::now();
  const std::filesystem::path& directory = parts.output.directory();
  const int64_t step = progress.position.step, metrics_bytes = parts.output.metrics_bytes();
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
  Result result;
  const auto on_first = [&](const std::function<std::string()>& work) {
    return run_on_all_ranks(
        parts.ranks, [&] { return parts.ranks.is_first() ? work() : std::string(); }, Channel::phases);
  };
  const std::string last = on_first([&] {
                             result = make_result(parts, progress);
                             return std::string(result.is_of_last_step ? "last" : "");
                           }).front();
  if (!last.empty()) collect_divided(parts, result.weights);
  const std::string masters =
      on_first([&] {
        choose_result_types(result.weights, parts.prepared.artefacts, parts.config.save.result_dtype);
        return std::string(!last.empty() && !result.weights.types.empty() ? "masters" : "");
      }).front();
  if (!masters.empty()) take_masters(result.weights, collect_masters(parts));
  on_first([&] {
    save_alone(parts, progress, checkpoints, result.weights);
    return std::string();
  });
}

}  // namespace trainer
