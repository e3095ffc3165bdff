#include "trainer/models/lora.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "trainer/base/error.h"
#include "trainer/base/random.h"
#include "trainer/base/strings.h"
#include "trainer/models/target_modules.h"
#include "trainer/models/tensor_views.h"
#include "trainer/nn/linear.h"

namespace trainer {
namespace {

AdapterConfig settings(const LoraConfig& config, const Model& model) {
  if (!config.adapter.empty()) return read_adapter_config(config.adapter);
  AdapterConfig out;
  out.task_type = model.encoder_decoder() ? "SEQ_2_SEQ_LM" : "CAUSAL_LM";
  out.r = config.r;
  out.lora_alpha = config.lora_alpha;
  out.lora_dropout = config.lora_dropout;
  out.target_modules = config.target_modules;
  if (const auto* list = std::get_if<std::vector<std::string>>(&out.target_modules);
      list != nullptr && list->empty()) {
    out.target_modules = model.default_lora_targets();
  }
  out.modules_to_save = config.modules_to_save;
  out.use_rslora = config.use_rslora;
  return out;
}

// Kaiming-uniform with a = sqrt(5): uniform within 1 / sqrt(in_features).
at::Tensor initial_a(const std::vector<int64_t>& shape, const std::string& name, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(derive(seed, name));
  const double bound = 1.0 / std::sqrt(static_cast<double>(shape[1]));
  return at::empty(shape, at::kFloat).uniform_(-bound, bound, generator);
}

void train(Parameter& parameter, const at::Tensor& value, at::Device device) {
  parameter.value = value.to(device, at::kFloat).contiguous().set_requires_grad(true);
}

// Trained copies of whole modules, fp32.
void save_modules(Model& model, const std::vector<std::string>& modules, at::Device device) {
  const std::vector<std::string> tied = model.tied_names();
  for (const std::string& wanted : modules) {
    bool found = false;
    std::vector<std::string> names;
    model.for_each_module([&](const std::string& name, Module& module) {
      names.push_back(name);
      if (name != wanted && !name.ends_with("." + wanted)) return;
      found = true;
      module.for_each_parameter(
          [&](const std::string& parameter_name, Parameter& parameter) {
            if (tied.size() > 1 && std::ranges::find(tied, parameter_name) != tied.end() &&
                tied.back() == "lm_head.weight") {
              throw ConfigError(
                  concat("lora.modules_to_save: ", parameter_name, " is tied to ",
                         parameter_name == tied[0] ? tied.back() : tied[0],
                         "; a saved copy of one of the two corrupts merged models. Leave it out."));
            }
            train(parameter, parameter.value.detach().clone(), device);
          },
          name);
    });
    if (!found) {
      if (tied.back() == "lm_head.weight" && wanted == "lm_head") {
        throw ConfigError(
            "lora.modules_to_save: lm_head is tied to the embedding in this model and has no weights of "
            "its own. Leave it out.");
      }
      const std::string near = closest(wanted, names);
      throw ConfigError(concat("lora.modules_to_save: '", wanted, "' is no module of this model",
                               near.empty() ? "" : concat("; did you mean '", near, "'?")));
    }
  }
}

// Values of an adapter file for every trained parameter; all that does not fit in one error.
void load_values(Model& model, const std::filesystem::path& directory, at::Device device) {
  const SafetensorsFile file = read_adapter_weights(directory);
  std::vector<std::string> problems;
  std::map<std::string, bool> used;
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (!parameter.trained()) return;
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end()) {
      problems.push_back(concat("missing: ", name, " ", shape_string(parameter.shape)));
    } else if (found->second.shape != parameter.shape) {
      problems.push_back(concat("misshapen: ", name, ": expected ", shape_string(parameter.shape), ", found ",
                                shape_string(found->second.shape)));
    } else {
      train(parameter, mapped_tensor(found->second, file.mapping).to(at::kFloat, false, /*copy=*/true),
            device);
    }
    used[name] = true;
  });
  for (const auto& [name, view] : file.tensors) {
    if (!used.contains(name)) problems.push_back(concat("unexpected: ", name, " ", shape_string(view.shape)));
  }
  if (!problems.empty()) {
    throw FormatError(
        concat(directory.string(), ": the adapter does not fit this model:\n  ", join(problems, "\n  ")));
  }
}

// Targets that do not fit are the configuration's fault, or that of the adapter's file.
std::vector<NamedLinear> targets_of(Model& model, const AdapterConfig& adapter, const LoraConfig& config) {
  if (config.adapter.empty()) return find_targets(model, adapter.target_modules);
  try {
    return find_targets(model, adapter.target_modules);
  } catch (const ConfigError& error) {
    throw FormatError(concat(config.adapter, "/adapter_config.json: ", error.what()));
  }
}

}  // namespace

AdapterConfig apply_lora(Model& model, const LoraConfig& config, uint64_t seed, at::Device device) {
  AdapterConfig adapter = settings(config, model);
  const double rank = static_cast<double>(adapter.r);
  const LoraOptions options{adapter.r, adapter.lora_alpha / (adapter.use_rslora ? std::sqrt(rank) : rank),
                            config.adapter.empty() ? config.lora_dropout : adapter.lora_dropout};
  model.for_each_parameter(
      [](const std::string&, Parameter& parameter) { parameter.value.set_requires_grad(false); });
  for (const NamedLinear& target : targets_of(model, adapter, config)) {
    target.linear->add_lora(options);
    Linear::Lora& lora = *target.linear->lora;
    train(lora.a.weight, initial_a(lora.a.weight.shape, target.name, seed), device);
    train(lora.b.weight, at::zeros(lora.b.weight.shape), device);
  }
  save_modules(model, adapter.modules_to_save, device);
  if (!config.adapter.empty()) load_values(model, config.adapter, device);
  return adapter;
}

std::map<std::string, at::Tensor> adapter_tensors(Model& model) {
  std::map<std::string, at::Tensor> tensors;
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (parameter.trained()) tensors[name] = parameter.value.detach();
  });
  return tensors;
}

std::unique_ptr<Model> load_model_or_adapter(const std::filesystem::path& directory,
                                             const LoadOptions& options, LoadReport* report) {
  std::unique_ptr<Model> model = load_model(base_directory(directory), options, report);
  if (!is_adapter_directory(directory)) return model;
  LoraConfig lora;
  lora.adapter = directory;
  apply_lora(*model, lora, 0, options.device);
  model->for_each_parameter(
      [](const std::string&, Parameter& parameter) { parameter.value.set_requires_grad(false); });
  return model;
}

}  // namespace trainer
