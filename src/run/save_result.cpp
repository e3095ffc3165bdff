#include "run/save_result.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <set>
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
#include "formats/trainer_state.h"
#include "models/tensor_views.h"
#include "run/run_state.h"

namespace trainer {
namespace {

// Replaces the last weights with those of the best evaluation, as far as this rank has them. If its
// checkpoint is gone or damaged, the best of those that are left counts, or the last step. Returns the
// checkpoint the weights come from, or nothing if the last ones stay.
std::optional<std::filesystem::path> load_best_model(RunParts& parts, RunProgress& progress) {
  BestMetric& best = progress.best;
  if (!best.step())
    log::warning(
        concat("no evaluation gave a number for ", best.metric(), ": the result is that of the last step"));
  const auto path_of = [&](int64_t step) {
    return kept_checkpoint(parts.output.directory(), progress.position, step);
  };
  std::set<int64_t> lost;
  while (best.step() && *best.step() != progress.position.step) {
    const int64_t step = *best.step();
    const std::filesystem::path path = path_of(step);
    try {
      if (path.empty()) throw FormatError("its checkpoint is gone");
      parts.prepared.artefacts.load(parts.model(), read_checkpoint(path).path);
      log::info(
          concat("the result is the best model, of step ", step, ": ", best.metric(), " ", *best.value()));
      return path;
    } catch (const FormatError& error) {
      lost.insert(step);
      best.choose(progress.history.rows(), [&](int64_t other) {
        return other == progress.position.step || (!lost.contains(other) && !path_of(other).empty());
      });
      const bool is_last = !best.step() || *best.step() == progress.position.step;
      log::warning(concat(
          "the best model, of step ", step, ", cannot be read: ", error.what(), "; the result is ",
          is_last ? "that of the last step" : concat("the best that is left, of step ", *best.step())));
    }
  }
  return std::nullopt;
}

// The result, on the rank that saves it.
struct Result {
  SavedWeights weights;
  bool is_of_last_step = false;
};

// Weights that other ranks have are on meta, unless they are in a file.
Result make_result(RunParts& parts, RunProgress& progress) {
  std::optional<std::filesystem::path> earlier;
  if (parts.resolved.training.load_best_model_at_end) earlier = load_best_model(parts, progress);
  Result result{parts.prepared.artefacts.weights(parts.model()), !earlier};
  if (!earlier || parts.trainer.sharded().empty() || parts.prepared.artefacts.adapter) return result;
  const ModelWeights stored = read_model_weights(*earlier);
  for (auto& [name, tensor] : result.weights.tensors) {
    if (tensor.is_meta())
      tensor = mapped_tensor(stored.tensors.at(name), stored.mapping_of(name), /*counted=*/false);
  }
  return result;
}

// Collects the trained weights of other ranks on rank 0, in main memory.
void gather_sharded(const RunParts& parts, SavedWeights& weights) {
  const Ranks& ranks = parts.ranks;
  for (const TrainedParameter& parameter : parts.trainer.parameters()) {
    const auto owner = parts.trainer.sharded().find(parameter.name);
    if (owner == parts.trainer.sharded().end() || owner->second == 0) continue;
    const at::Tensor& value = parameter.value;
    const at::Tensor values = ranks.rank() == owner->second
                                  ? value.detach().cpu().contiguous()
                                  : at::empty(value.sizes(), at::TensorOptions().dtype(value.scalar_type()));
    ranks.broadcast(owner->second, values);
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
  if (parts.trainer.owners().empty() || !parts.resolved.optimizer.master_weights) return masters;
  for (const TrainedParameter& parameter : parts.trainer.parameters()) {
    const int64_t owner = parts.trainer.owners().at(parameter.name);
    if (owner == 0 || parameter.value.scalar_type() == at::kFloat) continue;
    const at::Tensor values = ranks.rank() == owner
                                  ? masters.at(parameter.name).cpu().contiguous()
                                  : at::empty(parameter.value.sizes(), at::TensorOptions().dtype(at::kFloat));
    ranks.broadcast(owner, values);
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
    throw of_family(
        error.family().value_or(ErrorCode::files),
        FormatError(concat(error.what(), "; the result is not saved. ", checkpoints.last_text())));
  }
}

constexpr double kFp16End = 65520;  // everything below is rounded to 65504 at most

std::optional<Dtype> dtype_asked_for(SaveDtype asked) {
  switch (asked) {
    case SaveDtype::automatic:
      return std::nullopt;
    case SaveDtype::bf16:
      return Dtype::bf16;
    case SaveDtype::fp16:
      return Dtype::f16;
    case SaveDtype::fp32:
      return Dtype::f32;
  }
  return std::nullopt;
}

std::string dtype_word(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return "fp64";
    case Dtype::f32:
      return "fp32";
    case Dtype::f16:
      return "fp16";
    case Dtype::bf16:
      return "bf16";
    default:
      return dtype_name(dtype);
  }
}

std::string dtype_words(const std::set<Dtype>& types) {
  std::vector<std::string> words;
  for (const Dtype type : types) words.push_back(dtype_word(type));
  return join(words, " and ");
}

Dtype own_type(const at::Tensor& tensor) { return file_dtype(tensor.scalar_type()); }

// The type that holds the most values.
std::optional<Dtype> most_common(const std::map<std::string, at::Tensor>& tensors,
                                 const std::map<std::string, Dtype>& types) {
  std::map<Dtype, int64_t> values;
  for (const auto& [name, tensor] : tensors) {
    if (const auto type = types.find(name); type != types.end()) values[type->second] += tensor.numel();
  }
  const auto most = std::ranges::max_element(values, {}, [](const auto& item) { return item.second; });
  return most == values.end() ? std::nullopt : std::optional(most->first);
}

// The types of all tensors in the file.
std::map<std::string, Dtype> wanted_types(const SavedWeights& weights, const Artefacts& artefacts,
                                          SaveDtype asked) {
  const std::optional<Dtype> one = dtype_asked_for(asked);
  // A part that a model lacked, such as a head of its own, is saved as the rest of it.
  const std::optional<Dtype> usual =
      artefacts.adapter ? std::nullopt : most_common(weights.tensors, artefacts.came_as);
  std::map<std::string, Dtype> types;
  for (const auto& [name, tensor] : weights.tensors) {
    const auto came = artefacts.came_as.find(name);
    types[name] = one                               ? *one
                  : came != artefacts.came_as.end() ? came->second
                                                    : usual.value_or(own_type(tensor));
  }
  return types;
}

// Tensors that are to be fp16 and have a value beyond it get their own type again: config.json names one
// type, in which Transformers loads all of them.
void avoid_infinities(std::map<std::string, Dtype>& types, const SavedWeights& weights) {
  for (const auto& [name, tensor] : weights.tensors) {
    if (types.at(name) != Dtype::f16 || own_type(tensor) == Dtype::f16) continue;
    const double largest = largest_magnitude(tensor);
    if (largest < kFp16End) continue;
    std::set<Dtype> kept;
    for (const auto& [other, own] : weights.tensors) {
      if (types.at(other) != Dtype::f16) continue;
      kept.insert(types.at(other) = own_type(own));
    }
    log::warning(concat("the result is saved in ", dtype_words(kept), ", not in fp16: tensor '", name,
                        "' has a value of magnitude ", largest, ", beyond the range of fp16 (65504). ",
                        "save.result_dtype: bf16 or fp32 asks for a type that has room"));
    return;
  }
}

struct TypeChanges {
  std::set<Dtype> came, saved;
  bool differs = false;       // from what came in
  bool rounds_fp32 = false;   // trained in fp32, saved in 16 bits
  bool bf16_to_fp16 = false;  // another range
  bool bf16_to_fp32 = false;  // saved wider than it was trained
};

TypeChanges type_changes(const SavedWeights& weights, const Artefacts& artefacts, SaveDtype asked) {
  TypeChanges out;
  for (const auto& [name, saved] : wanted_types(weights, artefacts, asked)) {
    const Dtype own = own_type(weights.tensors.at(name));
    const auto came = artefacts.came_as.find(name);
    out.saved.insert(saved);
    if (came != artefacts.came_as.end()) {
      out.came.insert(came->second);
      out.differs = out.differs || came->second != saved;
    }
    out.rounds_fp32 = out.rounds_fp32 || (own == Dtype::f32 && (saved == Dtype::bf16 || saved == Dtype::f16));
    out.bf16_to_fp16 = out.bf16_to_fp16 || (own == Dtype::bf16 && saved == Dtype::f16);
    out.bf16_to_fp32 = out.bf16_to_fp32 || (own == Dtype::bf16 && dtype_size(saved) > dtype_size(own));
  }
  return out;
}

}  // namespace

void save_result(RunParts& parts, RunProgress& progress, Checkpoints& checkpoints) {
  Result result;
  const auto on_first = [&](const std::function<std::string()>& work) {
    return run_on_all_ranks(
        parts.ranks, [&] { return parts.ranks.is_first() ? work() : std::string(); }, Channel::phases);
  };
  const std::string last = on_first([&] {
                             result = make_result(parts, progress);
                             return std::string(result.is_of_last_step ? "last" : "");
                           }).front();
  if (!last.empty()) gather_sharded(parts, result.weights);
  const std::string masters =
      on_first([&] {
        choose_result_types(result.weights, parts.prepared.artefacts, parts.resolved.save.result_dtype);
        return std::string(!last.empty() && !result.weights.types.empty() ? "masters" : "");
      }).front();
  if (!masters.empty()) take_masters(result.weights, collect_masters(parts));
  on_first([&] {
    save_alone(parts, progress, checkpoints, result.weights);
    return std::string();
  });
}

void choose_result_types(SavedWeights& weights, const Artefacts& artefacts, SaveDtype asked) {
  std::map<std::string, Dtype> types = wanted_types(weights, artefacts, asked);
  avoid_infinities(types, weights);
  weights.dtype = most_common(weights.tensors, types).value_or(weights.dtype);
  std::erase_if(types,
                [&](const auto& item) { return item.second == own_type(weights.tensors.at(item.first)); });
  weights.types = std::move(types);
}

std::string result_types_text(const SavedWeights& weights, const Artefacts& artefacts, const Config& config) {
  const TypeChanges change = type_changes(weights, artefacts, config.save.result_dtype);
  const bool keeps_master = config.optimizer.master_weights && !config.training.load_best_model_at_end;
  const bool adds_nothing = change.bf16_to_fp32 && !keeps_master;
  if (!change.differs && !change.rounds_fp32 && !change.bf16_to_fp16 && !adds_nothing) return "";
  std::string text = dtype_words(change.saved);
  if (change.differs) {
    text += concat(" (save.result_dtype), where ", dtype_words(change.came), " came in");
  } else {
    text += change.came.empty() ? " (save.result_dtype)" : ", as it came in";
  }
  if (change.rounds_fp32)
    text += "; trained in fp32, and rounded when it is saved (save.result_dtype: fp32 keeps it whole)";
  if (change.bf16_to_fp16)
    text += "; trained in bf16: values below 7.6e-6 are rounded, and one beyond 65504 keeps all in bf16";
  if (adds_nothing)
    text += "; trained in bf16, whose precision the values have (model.dtype: fp32 trains in fp32)";
  return text;
}

}  // namespace trainer
