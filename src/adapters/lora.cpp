#include "trainer/adapters/lora.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>
#include <variant>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/nn/linear.h"

#include "adapters/adapter_values.h"
#include "adapters/target_modules.h"
#include "base/random.h"
#include "formats/text_half.h"
#include "formats/two_stacks.h"
#include "nn/embedding.h"
#include "weights/weight_format.h"

namespace trainer {
namespace {

// PEFT looks for targets in the whole of a model of texts and images, where the vision tower has modules of
// the same names.
ModuleNames without_other_half(const ModuleNames& excluded, bool two_stacks) {
  std::string pattern = two_stacks ? R"((?!model\.encoder\.text_model\.|model\.decoder\.).*)"
                                   : R"((?!model\.language_model\.|lm_head$).*)";
  const auto* names = std::get_if<std::vector<std::string>>(&excluded);
  if (names == nullptr) {
    const std::string& own = std::get<std::string>(excluded);
    return own.empty() ? pattern : concat(pattern, "|", own);
  }
  static const std::regex special(R"([.^$|()\[\]{}*+?\\])");
  for (const std::string& name : *names)
    pattern += concat(R"(|(.*\.)?)", std::regex_replace(name, special, R"(\$&)"));
  return pattern;
}

// The module of a head that scores texts, which PEFT saves whole; "": it has no weights.
std::string score_head_module(Model& model) {
  std::string module;
  model.for_each_module([&](const std::string& name, Module&) {
    if (is_of_score_head(name + ".")) module = name;
  });
  return module;
}

const char* task_type(const Model& model) {
  const auto scores = score_head_in(model.config());
  if (!scores) return model.encoder_decoder() ? "SEQ_2_SEQ_LM" : "CAUSAL_LM";
  if (scores->score == RowScore::tags) return "TOKEN_CLS";
  return scores->encoder_only ? "FEATURE_EXTRACTION" : "SEQ_CLS";
}

// PEFT's all-linear would take the layers of a T5's classification_head, too, which are saved.
void name_linear_layers(Model& model, AdapterConfig& adapter) {
  std::set<std::string> names;
  model.for_each_module([&](const std::string& name, Module& module) {
    if (dynamic_cast<Linear*>(&module) != nullptr) names.insert(name.substr(name.rfind('.') + 1));
  });
  adapter.target_modules = std::vector<std::string>(names.begin(), names.end());
}

AdapterConfig settings(const LoraConfig& config, Model& model) {
  if (!config.adapter.empty()) return read_adapter_config(config.adapter);
  const bool scores = model.head().scores() != nullptr;
  AdapterConfig out;
  out.task_type = task_type(model);
  out.r = config.r;
  out.lora_alpha = config.lora_alpha;
  out.lora_dropout = config.lora_dropout;
  out.target_modules = config.target_modules;
  if (out.target_modules == ModuleNames(std::vector<std::string>{})) {
    out.target_modules = model.default_lora_targets();
  }
  out.modules_to_save = config.modules_to_save;
  if (scores) {
    const std::string module = score_head_module(model);
    std::erase(out.modules_to_save, module);
    if (!module.empty()) out.modules_to_save.push_back(module);
    if (model.encoder_decoder() && out.target_modules == ModuleNames("all-linear"))
      name_linear_layers(model, out);
  }
  out.exclude_modules = config.exclude_modules;
  if (model.config().contains(kWholeModelType))
    out.exclude_modules = without_other_half(config.exclude_modules, has_two_stacks(model.config()));
  out.layers_to_transform = config.layers_to_transform;
  out.layers_pattern = config.layers_pattern;
  out.rank_pattern = config.rank_pattern;
  out.alpha_pattern = config.alpha_pattern;
  out.use_rslora = config.use_rslora;
  out.use_dora = config.use_dora;
  return out;
}

// Values are drawn on the CPU, so that every device gets the same ones; a memory plan draws none.
at::TensorOptions drawn(at::Device device) {
  return at::TensorOptions().dtype(at::kFloat).device(device.is_meta() ? device : at::Device(at::kCPU));
}

// Kaiming-uniform with a = sqrt(5): uniform within 1 / sqrt(in_features).
at::Tensor initial_a(const std::vector<int64_t>& shape, const std::string& name, uint64_t seed,
                     at::Device device) {
  if (device.is_meta()) return at::empty(shape, drawn(device));
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(derive(seed, name));
  const double bound = 1.0 / std::sqrt(static_cast<double>(shape[1]));
  return at::empty(shape, at::kFloat).uniform_(-bound, bound, generator);
}

// Refuses a saved module that is one of a tied pair, or contains one.
[[noreturn]] void refuse_tied(const Model& model, const std::string& name) {
  const std::vector<std::string> tied = model.tied_names();
  throw ConfigError(concat("lora.modules_to_save: ", name, " is tied to ",
                           name == tied[0] ? tied.back() : tied[0],
                           "; a saved copy of one of the two corrupts merged models. Leave it out."));
}

// Refuses what needs the values of weights that other ranks have. Each rank lacks some.
void need_values(const Parameter& parameter, const char* key, const std::string& name) {
  if (!parameter.value.is_of_other_rank()) return;
  throw ConfigError(concat(key, ": ", name, " is sharded (parallel.shard: all), and this needs ",
                           "all of it; write parallel.shard=optimizer, or leave it out"));
}

// Makes trained fp32 copies of whole modules. If an adapter was read, the head is untied by now where needed.
void save_modules(Model& model, const AdapterConfig& adapter, bool is_new, at::Device device) {
  for (const std::string& wanted : adapter.modules_to_save) {
    bool found = wanted == "lm_head" && adapter.ensure_weight_tying && has_tied_head(model);
    std::vector<std::string> names;
    model.for_each_module([&](const std::string& name, Module& module) {
      names.push_back(name);
      if (!name.ends_with(wanted)) return;  // as in PEFT: "norm" also matches input_layernorm
      if (name == "shared") {
        throw ConfigError(
            "lora.modules_to_save: shared: a T5's encoder and decoder use embed_tokens, so that a saved copy "
            "of shared would change nothing; name embed_tokens instead");
      }
      found = true;
      if (auto* embedding = dynamic_cast<Embedding*>(&module)) embedding->own_weight();
      module.for_each_parameter(
          [&](const std::string& parameter_name, Parameter& parameter) {
            if (is_new && !adapter.ensure_weight_tying && has_tied_head(model) &&
                parameter_name == model.tied_names()[0]) {
              refuse_tied(model, parameter_name);
            }
            need_values(parameter, "lora.modules_to_save", parameter_name);
            train(parameter, parameter.value.copy(at::kFloat), device);
          },
          name);
    });
    // For a classifier PEFT names both modules that its head may be.
    const bool of_peft = adapter.task_type == "SEQ_CLS" && (wanted == "score" || wanted == "classifier");
    if (found || (of_peft && !is_new)) continue;
    if (wanted == "lm_head" && has_tied_head(model)) {
      throw ConfigError(
          "lora.modules_to_save: lm_head is tied to the embedding in this model and has no weights of "
          "its own. Leave it out.");
    }
    const std::string near = closest(wanted, names);
    throw ConfigError(concat("lora.modules_to_save: '", wanted, "' is not a module of this model",
                             near.empty() ? "" : concat("; did you mean '", near, "'?")));
  }
}

// Makes biases of the model trained (PEFT's `bias`).
void train_biases(Model& model, const std::vector<Target>& targets, AdapterBias which, at::Device device) {
  if (which == AdapterBias::all) {
    model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
      if (name.ends_with(".bias") && !parameter.trained())
        train(parameter, parameter.value.copy(at::kFloat), device);
    });
  } else if (which == AdapterBias::lora_only) {
    for (const Target& target : targets) {
      if (target.linear == nullptr || !target.linear->bias || target.linear->bias->trained()) continue;
      train(*target.linear->bias, target.linear->bias->value.copy(at::kFloat), device);
    }
  }
}

// Initializes the adapter's tensors as PEFT does; at first the adapter adds 0.
void add_adapter(const Target& target, const LoraOptions& options, uint64_t seed, at::Device device) {
  if (target.linear != nullptr) {
    target.linear->add_lora(options);
    Linear::Lora& lora = *target.linear->lora;
    train(lora.a.weight, initial_a(lora.a.weight.shape, target.name, seed, device), device);
    train(lora.b.weight, at::zeros(lora.b.weight.shape, drawn(device)), device);
    if (lora.b.bias) train(*lora.b.bias, at::zeros(lora.b.bias->shape, drawn(device)), device);
    if (lora.magnitude) {
      need_values(target.linear->weight, "lora.use_dora", target.name);
      train(*lora.magnitude, target.linear->dora_norm(), device);
    }
  } else {
    target.embedding->add_lora(options);
    Embedding::Lora& lora = *target.embedding->lora;
    train(lora.a, at::zeros(lora.a.shape, drawn(device)), device);
    const at::Tensor b = at::empty(lora.b.shape, drawn(device));
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(derive(seed, target.name));
    train(lora.b, device.is_meta() ? b : b.normal_(0, 1, generator), device);
    if (lora.magnitude) train(*lora.magnitude, target.embedding->dora_norm(), device);
  }
}

// Refuses an adapter on one of a tied pair: merging it would untie the model.
void check_tied_targets(const Model& model, const std::vector<Target>& targets) {
  if (!has_tied_head(model) || model.encoder_decoder()) return;
  for (const Target& target : targets) {
    if (target.embedding == nullptr) continue;
    throw ConfigError(concat("lora.target_modules: ", target.name,
                             " is tied to lm_head; an adapter on one of the two corrupts merged models. "
                             "Leave it out."));
  }
}

// Trains the embedding and the head in full, as modules to save. The embedding of a T5 is not one of those,
// because its copy would not reach the stacks; it is stored as PEFT stores one of a resized vocabulary.
void save_vocabulary(const Model& model, AdapterConfig& adapter) {
  std::vector<std::string> names;
  if (!model.encoder_decoder()) names.push_back("embed_tokens");
  if (model.head().scores() != nullptr) {
  } else if (!has_tied_head(model)) {
    names.push_back("lm_head");
  } else if (!model.encoder_decoder()) {
    adapter.ensure_weight_tying = true;
  }
  for (const std::string& name : names) {
    if (std::ranges::find(adapter.modules_to_save, name) == adapter.modules_to_save.end())
      adapter.modules_to_save.push_back(name);
  }
}

// PEFT puts the one adapter of a tied pair on the embedding, also where the head was asked for; the files of
// older releases name the head only.
void target_embedding(const Model& model, AdapterConfig& adapter) {
  auto* targets = std::get_if<std::vector<std::string>>(&adapter.target_modules);
  if (!adapter.ensure_weight_tying || !has_tied_head(model) || model.encoder_decoder() || targets == nullptr)
    return;
  if (std::erase(*targets, "lm_head") == 0) return;
  const std::string embedding = model.tied_names()[0];
  targets->push_back(embedding.substr(0, embedding.rfind('.')));
}

// With ensure_weight_tying, embedding and head have one adapter.
void share_with_head(Model& model, const AdapterConfig& adapter, const std::vector<Target>& targets) {
  const auto on_embedding = [](const Target& target) { return target.embedding != nullptr; };
  if (!adapter.ensure_weight_tying || !has_tied_head(model)) return;
  if (std::ranges::none_of(targets, on_embedding)) return;
  if (adapter.use_dora || !model.share_adapter_with_head()) {
    throw ConfigError(concat("ensure_weight_tying: an adapter on a tied embedding is not supported ",
                             adapter.use_dora ? "with use_dora, which gives embedding and head magnitudes of "
                                                "their own"
                                              : "for this model"));
  }
}

// T5Gemma's head has another name in PEFT's files, lm_head.out_proj, than in this program, and an adapter on
// one of its embeddings would leave the tables that are tied to it as they are.
void refuse_vocabulary_of_two_stacks(const Model& model, const std::vector<Target>& targets,
                                     const AdapterConfig& adapter) {
  if (!has_two_stacks(model.config())) return;
  const auto refuse = [&](const char* key, const std::string& name) {
    throw ConfigError(
        concat(key, ": ", name, ": not supported for model_type ", model.model_type(), "; leave it out"));
  };
  for (const Target& target : targets)
    if (target.embedding != nullptr || target.name == "lm_head") refuse("lora.target_modules", target.name);
  for (const std::string& saved : adapter.modules_to_save) {
    if (saved.ends_with("embed_tokens") || saved.starts_with("lm_head"))
      refuse("lora.modules_to_save", saved);
  }
}

void put_on(Model& model, AdapterConfig& adapter, bool is_new, uint64_t seed, at::Device device) {
  if (!is_new) target_embedding(model, adapter);
  const std::vector<Target> targets = find_targets(model, adapter, /*every_entry_matches=*/is_new);
  refuse_vocabulary_of_two_stacks(model, targets, adapter);
  if (is_new) check_tied_targets(model, targets);
  for (const Target& target : targets) {
    add_adapter(target, lora_options(adapter, target.name), seed, device);
  }
  share_with_head(model, adapter, targets);
  save_modules(model, adapter, is_new, device);
  train_biases(model, targets, adapter.bias, device);
}

// The same for an adapter that was read; errors then name its file.
void put_on_read(Model& model, AdapterConfig& adapter, const std::filesystem::path& directory,
                 at::Device device) {
  if (adapter.ensure_weight_tying && model.encoder_decoder() && !adapter.modules_to_save.empty()) {
    throw FormatError(concat(directory.string(),
                             "/adapter_config.json: ensure_weight_tying is not supported ",
                             "on a T5 with modules_to_save"));
  }
  try {
    put_on(model, adapter, /*is_new=*/false, 0, device);
  } catch (const ConfigError& error) {
    throw FormatError(concat(directory.string(), "/adapter_config.json: ", error.what()));
  }
}

}  // namespace

AdapterConfig apply_lora(Model& model, const LoraConfig& config, uint64_t seed, at::Device device,
                         bool train_vocabulary) {
  AdapterConfig adapter = settings(config, model);
  model.for_each_parameter(
      [](const std::string&, Parameter& parameter) { parameter.value.set_requires_grad(false); });
  if (config.adapter.empty()) {
    if (train_vocabulary) save_vocabulary(model, adapter);
    put_on(model, adapter, /*is_new=*/true, seed, device);
  } else {
    const SafetensorsFile file = read_adapter_weights(config.adapter);
    fit_vocabulary(model, adapter, file);
    put_on_read(model, adapter, config.adapter, device);
    load_adapter_values(model, file, config.adapter, device);
    if (train_vocabulary) save_vocabulary(model, adapter);
  }
  if (train_vocabulary) {
    for (Parameter* parameter : model.vocabulary()) {
      if (!parameter->trained()) train(*parameter, parameter->value.copy(at::kFloat), device);
    }
  }
  return adapter;
}

std::map<std::string, at::Tensor> adapter_tensors(Model& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, parameter] : adapter_parameters(model))
    tensors[name] = parameter->value.tensor().detach();
  tensors.merge(shared_head_tensors(model));
  return tensors;
}

std::optional<Quantisation> quantisation_in_training(const std::filesystem::path& adapter) {
  const std::map<std::string, std::string> metadata = read_adapter_weights(adapter).metadata;
  const auto found = metadata.find(kTrainedOn);
  if (found == metadata.end()) return std::nullopt;
  const std::string name = found->second.substr(0, found->second.find(' '));
  const std::vector<const WeightFormat*> formats = weight_formats();
  if (std::ranges::none_of(formats, [&](const auto* one) { return one->name().name == name; }))
    return std::nullopt;
  return Quantisation{.double_quant = found->second.ends_with(kDoublyQuantised),
                      .keep_dense = read_adapter_config(adapter).modules_to_save,
                      .format = name};
}

std::string trained_on(const Quantisation& quantisation) {
  const WeightFormatName& format = weight_format(quantisation.format).name();
  return concat(format.name, quantisation.double_quant && format.has_double_quant ? kDoublyQuantised : "");
}

std::unique_ptr<Model> load_model_or_adapter(const std::filesystem::path& directory,
                                             const LoadOptions& options, LoadReport* report,
                                             const std::filesystem::path& base) {
  if (!is_adapter_directory(directory)) return load_model(directory, options, report);
  LoadOptions as_in_training = options;
  if (!options.quantise) {
    as_in_training.quantise = quantisation_in_training(directory);
    if (as_in_training.quantise)
      log::info(concat(directory.string(), ": was trained on ",
                       weight_format(as_in_training.quantise->format).name().title,
                       " weights; its base is quantised in the same way"));
  }
  return load_with_adapter(base_directory(directory, base), directory, as_in_training, report);
}

std::unique_ptr<Model> load_with_adapter(const std::filesystem::path& base,
                                         const std::filesystem::path& adapter, const LoadOptions& options,
                                         LoadReport* report) {
  LoadOptions with_head = options;
  if (!with_head.head) with_head.head = score_head_of(adapter);
  std::unique_ptr<Model> model = load_model(base, with_head, report);
  LoraConfig lora;
  lora.adapter = adapter;
  apply_lora(*model, lora, 0, options.device);
  model->for_each_parameter(
      [](const std::string&, Parameter& parameter) { parameter.value.set_requires_grad(false); });
  return model;
}

}  // namespace trainer
