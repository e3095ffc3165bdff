#include "run/result_types.h"

#include <algorithm>
#include <set>
#include <vector>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "models/tensor_views.h"
#include "run/tensor_files.h"

namespace trainer {
namespace {

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
