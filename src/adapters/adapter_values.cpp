#include "adapters/adapter_values.h"

#include <cstring>
#include <set>
#include <string_view>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/models/model.h"
#include "trainer/nn/linear.h"

#include "adapters/merge_plan.h"
#include "base/text.h"
#include "models/tensor_views.h"
#include "nn/embedding.h"

namespace trainer {
namespace {

// Modules that have an adapter.
std::set<std::string> adapted_modules(Model& model) {
  std::set<std::string> names;
  model.for_each_module([&](const std::string& name, Module& module) {
    const auto* linear = dynamic_cast<const Linear*>(&module);
    const auto* embedding = dynamic_cast<const Embedding*>(&module);
    if ((linear != nullptr && linear->lora) || (embedding != nullptr && embedding->lora)) names.insert(name);
  });
  return names;
}

// "lm_head.weight" -> "lm_head.base_layer.weight"
std::string wrapped(const std::string& name) {
  const size_t dot = name.rfind('.');
  return name.substr(0, dot) + ".base_layer" + name.substr(dot);
}

// Looks for a parameter under its own name, then under its name in a wrapper; null if the file has neither.
const TensorView* find_stored(const SafetensorsFile& file, const std::string& name) {
  for (const std::string& stored : {name, wrapped(name)}) {
    const auto found = file.tensors.find(stored);
    if (found != file.tensors.end()) return &found->second;
  }
  return nullptr;
}

std::map<std::string, Parameter*> vocabulary_by_name(Model& model) {
  const std::vector<Parameter*> vocabulary = model.vocabulary();
  std::map<std::string, Parameter*> named;
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (std::ranges::find(vocabulary, &parameter) != vocabulary.end()) named[name] = &parameter;
  });
  return named;
}

constexpr const char *kHeadA = "lm_head.lora_A.weight", *kHeadB = "lm_head.lora_B.weight";

// "model.embed_tokens" of "model.embed_tokens.weight"
std::string embedding_module(const Model& model) {
  const std::string name = model.tied_names()[0];
  return name.substr(0, name.rfind('.'));
}

// PEFT gives each of a tied pair its own adapter or copy, unless it is configured to keep them tied.
bool head_is_its_own(Model& model, const AdapterConfig& config, const SafetensorsFile& file) {
  if (config.ensure_weight_tying) return false;
  if (file.tensors.contains(kHeadA)) return true;
  const std::string embedding = model.tied_names()[0];
  for (const std::string& saved : config.modules_to_save) {
    if (std::string_view(kHead).ends_with(saved + ".weight") || embedding.ends_with(saved + ".weight"))
      return true;
  }
  const TensorView *head = find_stored(file, kHead), *table = find_stored(file, embedding);
  return head != nullptr && (table == nullptr || !same_bytes(*head, *table));
}

// PEFT's file also holds copies if a saved module was resized.
bool is_copy(const std::string& name, const SafetensorsFile& file) {
  for (const std::string middle : {".modules_to_save.weight", ".original_module.weight"}) {
    if (name.ends_with(middle) &&
        file.tensors.contains(name.substr(0, name.size() - middle.size()) + ".weight"))
      return true;
  }
  return false;
}

// The value of an adapter's parameter in the file; undefined if it is not there. A tied embedding's may stand
// only as that of the head, transposed.
at::Tensor stored_value(const SafetensorsFile& file, const std::string& name, bool shared) {
  if (const auto found = file.tensors.find(name); found != file.tensors.end())
    return mapped_tensor(found->second, file.mapping);
  const char* head = name.ends_with(".lora_embedding_A")   ? kHeadB
                     : name.ends_with(".lora_embedding_B") ? kHeadA
                                                           : nullptr;
  if (!shared || head == nullptr || !file.tensors.contains(head)) return {};
  return mapped_tensor(file.tensors.at(head), file.mapping).t();
}

// PEFT stores the one adapter of embedding and head twice.
void check_shared(const SafetensorsFile& file, const std::string& module,
                  std::vector<std::string>& problems) {
  for (const auto& [head, part] :
       {std::pair(kHeadA, ".lora_embedding_B"), std::pair(kHeadB, ".lora_embedding_A")}) {
    const std::string own = module + part;
    if (!file.tensors.contains(head) || !file.tensors.contains(own)) continue;
    if (stored_value(file, head, false).equal(stored_value(file, own, false).t())) continue;
    problems.push_back(
        concat("different: ", head, " and ", own, ", which are one adapter because of ensure_weight_tying"));
  }
}

// A stored embedding or head that is not trained replaces that of the base model. A model in fp32 may hold
// weights in the type of their file, and then the new ones in that of theirs: those of an adapter are often
// wider.
void replace_frozen(Parameter& parameter, const at::Tensor& stored, at::ScalarType computed) {
  const at::ScalarType held = parameter.value.scalar_type();
  const at::ScalarType type = computed == at::kFloat ? at::promote_types(held, stored.scalar_type()) : held;
  const at::Tensor value = stored.to(parameter.value.device(), type, false, true);
  if (value.equal(parameter.as(value.scalar_type()))) return;
  parameter.value = value;
  parameter.in_adapter = true;
}

}  // namespace

std::map<std::string, Parameter*> adapter_parameters(Model& model) {
  const std::set<std::string> adapted = adapted_modules(model);
  std::map<std::string, Parameter*> parameters;
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (!parameter.trained() && !parameter.in_adapter) return;
    const size_t dot = name.rfind('.');
    const bool base = adapted.contains(name.substr(0, dot)) &&
                      (name.substr(dot) == ".weight" || name.substr(dot) == ".bias");
    parameters[base ? wrapped(name) : name] = &parameter;
  });
  // PEFT stores a tied head beside its embedding.
  if (has_tied_head(model)) {
    for (const std::string& name : {model.tied_names()[0], wrapped(model.tied_names()[0])}) {
      if (parameters.contains(name)) parameters[kHead] = parameters[name];
    }
  }
  return parameters;
}

void train(Parameter& parameter, const at::Tensor& value, at::Device device) {
  parameter.value = value.to(device, at::kFloat).contiguous().set_requires_grad(true);
}

bool has_tied_head(const Model& model) { return model.tied_names().back() == kHead; }

void fit_vocabulary(Model& model, const AdapterConfig& config, const SafetensorsFile& file) {
  if (has_tied_head(model) && head_is_its_own(model, config, file)) model.untie_head();
  for (const auto& [name, parameter] : vocabulary_by_name(model)) {
    const TensorView* stored = find_stored(file, name);
    if (stored != nullptr && stored->shape.size() == 2 && stored->shape[0] > model.vocab_size()) {
      resize_vocabulary(model, stored->shape[0]);
    }
  }
}

std::map<std::string, at::Tensor> shared_head_tensors(Model& model) {
  if (!model.head().shares_adapter()) return {};
  const std::string module = embedding_module(model);
  const std::map<std::string, Parameter*> parameters = adapter_parameters(model);
  const auto transposed = [&](const char* part) {
    return parameters.at(concat(module, part))->value.tensor().detach().t();
  };
  return {{kHeadA, transposed(".lora_embedding_B")}, {kHeadB, transposed(".lora_embedding_A")}};
}

void load_adapter_values(Model& model, const SafetensorsFile& file, const std::filesystem::path& directory,
                         at::Device device) {
  std::vector<std::string> problems;
  std::set<std::string> used;
  const bool shared = model.head().shares_adapter();
  const auto fill = [&](const std::string& name, Parameter& parameter, const std::string& stored_name) {
    used.insert(stored_name);
    const at::Tensor stored = stored_value(file, stored_name, shared);
    if (!stored.defined()) {
      problems.push_back(concat("missing: ", name, " ", shape_string(parameter.shape)));
    } else if (stored.sizes() != at::IntArrayRef(parameter.shape)) {
      problems.push_back(concat("misshapen: ", name, ": expected ", shape_string(parameter.shape), ", found ",
                                shape_string(stored.sizes().vec())));
    } else {
      if (parameter.trained()) {
        train(parameter, stored.to(at::kFloat, false, /*copy=*/true), device);
      } else {
        replace_frozen(parameter, stored, model.dtype());
      }
    }
  };
  const bool tied = has_tied_head(model);
  for (const auto& [name, parameter] : adapter_parameters(model)) {
    if (!tied || name != kHead) fill(name, *parameter, name);
  }
  for (const auto& [name, parameter] : vocabulary_by_name(model)) {
    for (const std::string& stored : {name, wrapped(name)}) {
      if (file.tensors.contains(stored) && !used.contains(stored)) fill(name, *parameter, stored);
    }
  }
  if (tied) used.insert({kHead, wrapped(kHead)});
  if (shared) {
    used.insert({kHeadA, kHeadB});
    check_shared(file, embedding_module(model), problems);
  }
  for (const auto& [name, view] : file.tensors) {
    if (!used.contains(name) && !is_copy(name, file))
      problems.push_back(concat("unexpected: ", name, " ", shape_string(view.shape)));
  }
  if (!problems.empty()) {
    throw of_family(ErrorCode::adapter,
                    FormatError(concat(directory.string(), ": the adapter does not fit this model:\n  ",
                                       join_some(problems, 100, "\n  "))));
  }
}

}  // namespace trainer
