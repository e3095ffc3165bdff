// torchtune: recipes/configs. Parts are built by name (_component_), and ${...} refers to other keys.
#include <algorithm>

#include "trainer/base/strings.h"

#include "config/import_settings.h"
#include "config/value.h"
#include "config/weight_formats.h"

namespace trainer::config {
namespace {

// Resolves ${output_dir} in the text of a file.
class Interpolation {
 public:
  explicit Interpolation(ForeignKeys& keys) {
    if (const auto value = keys.take_text("output_dir")) output_dir_ = *value;
  }
  const std::string& output_dir() const { return output_dir_; }
  std::string operator()(std::string text) const {
    constexpr std::string_view kName = "${output_dir}";
    if (const size_t at = text.find(kName); at != std::string::npos)
      text.replace(at, kName.size(), output_dir_);
    return text;
  }

 private:
  std::string output_dir_;
};

bool flag(const YAML::Node& mapping, const char* name) {
  const YAML::Node value = mapping[name];
  return value.IsDefined() && is_true(value);
}

std::string component(const YAML::Node& mapping) {
  const std::string path = text_at(mapping, "_component_");
  return path.substr(path.rfind('.') + 1);
}

void import_model(const YAML::Node& model, ImportedSettings& settings) {
  const std::string name = component(model);
  if (name.find("lora_") == std::string::npos) return;
  settings.turn_lora_on();
  std::vector<std::string> modules;
  const YAML::Node attention = model["lora_attn_modules"];
  if (attention.IsDefined() && attention.IsSequence()) {
    for (const auto& module : attention)
      modules.push_back(module.Scalar() == "output_proj" ? "o_proj" : module.Scalar());
  }
  if (flag(model, "apply_lora_to_mlp")) modules.insert(modules.end(), {"gate_proj", "up_proj", "down_proj"});
  if (flag(model, "apply_lora_to_output")) modules.emplace_back("lm_head");
  if (!modules.empty())
    settings.set_list("lora.target_modules", modules, "model.lora_attn_modules, apply_lora_to_...");
  const std::pair<const char*, const char*> plain[] = {
      {"lora_rank", "lora.r"}, {"lora_alpha", "lora.lora_alpha"}, {"lora_dropout", "lora.lora_dropout"}};
  for (const auto& [theirs, key] : plain) {
    if (const std::string value = text_at(model, theirs); !value.empty())
      settings.set(key, value, concat("model.", theirs));
  }
  if (flag(model, "use_dora")) settings.set("lora.use_dora", "true", "model.use_dora");
  if (flag(model, "quantize_base") || name.starts_with("qlora_"))
    settings.set("model.quantize", smallest_weight_format().name,
                 name.starts_with("qlora_") ? "model: " + name : "model.quantize_base");
}

void import_dataset(const YAML::Node& dataset, ImportedSettings& settings) {
  const std::string name = component(dataset);
  std::vector<std::string> files;
  const YAML::Node given = dataset["data_files"];
  if (given.IsDefined() && !given.IsNull()) files = texts_of(given);
  if (const std::string source = text_at(dataset, "source");
      files.empty() && !source.empty() && source != "json")
    files = {source};
  if (files.empty() && name == "alpaca_dataset") files = {"tatsu-lab/alpaca"};
  if (files.empty() && name == "alpaca_cleaned_dataset") files = {"yahma/alpaca-cleaned"};
  if (files.empty()) {
    settings.leave_out("dataset: " + name, "name its files in data.train");
  } else {
    settings.set_list("data.train", files, "dataset");
  }
  if (name.starts_with("alpaca")) {
    settings.set("data.kind", "chat", "dataset: " + name);
    settings.change("dataset: " + name,
                    "instruction and input are the user's message in the model's chat template");
  } else if (name == "chat_dataset") {
    settings.set("data.kind", "chat", "dataset: " + name);
  } else if (name == "text_completion_dataset") {
    settings.set("data.kind", "text", "dataset: " + name);
    if (const std::string column = text_at(dataset, "column"); !column.empty())
      settings.set_text("data.input", column, "dataset.column");
  }
  if (flag(dataset, "packed")) {
    settings.set("data.packing", "true", "dataset.packed");
    settings.change("dataset.packed", "effective_batch_size counts samples, not packed rows");
  }
  if (flag(dataset, "train_on_input")) settings.set("data.loss_on", "everything", "dataset.train_on_input");
  for (const char* other :
       {"split", "column_map", "new_system_prompt", "conversation_column", "conversation_style"}) {
    const YAML::Node value = dataset[other];
    if (value.IsDefined() && !value.IsNull() &&
        !(value.IsScalar() && (value.Scalar() == "train" || value.Scalar() == "sharegpt")))
      settings.leave_out(concat("dataset.", other),
                         "data.kind, data.input and data.target say how rows are read");
  }
}

void import_optimizer_part(const YAML::Node& optimizer, ImportedSettings& settings) {
  import_optimizer(component(optimizer), "optimizer", settings);
  const std::pair<const char*, const char*> plain[] = {{"lr", "optimizer.learning_rate"},
                                                       {"weight_decay", "optimizer.weight_decay"},
                                                       {"eps", "optimizer.adam_epsilon"}};
  for (const auto& [theirs, key] : plain) {
    const YAML::Node value = optimizer[theirs];
    if (value.IsDefined() && value.IsScalar())
      settings.set(key, node_as_yaml(value), concat("optimizer.", theirs));
  }
}

void import_scheduler(ForeignKeys& keys, ImportedSettings& settings) {
  const auto scheduler = keys.take("lr_scheduler");
  if (!scheduler) {
    settings.set("optimizer.lr_scheduler_type", "constant", "torchtune without lr_scheduler");
    return;
  }
  const std::string name = component(*scheduler);
  if (name.find("cosine") == std::string::npos) {
    settings.leave_out("lr_scheduler: " + name, "set optimizer.lr_scheduler_type");
  } else {
    settings.set("optimizer.lr_scheduler_type", "cosine", "lr_scheduler");
  }
  if (const std::string steps = text_at(*scheduler, "num_warmup_steps"); !steps.empty() && steps != "0")
    settings.set("optimizer.warmup_steps", steps, "lr_scheduler.num_warmup_steps");
}

void import_places(ForeignKeys& keys, const Interpolation& resolved, ImportedSettings& settings) {
  if (const auto checkpointer = keys.take("checkpointer"); checkpointer && checkpointer->IsMap()) {
    if (const std::string path = text_at(*checkpointer, "checkpoint_dir"); !path.empty())
      settings.set_text("model.path", resolved(path), "checkpointer.checkpoint_dir");
    const std::string kind = component(*checkpointer);
    if (kind == "FullModelMetaCheckpointer")
      settings.change("checkpointer",
                      "files of Meta's format are not read; the directory must be that of Hugging Face");
  }
  if (!resolved.output_dir().empty()) settings.set_text("output_dir", resolved.output_dir(), "output_dir");
  if (const auto tokenizer = keys.take("tokenizer"); tokenizer && tokenizer->IsMap()) {
    if (const std::string length = text_at(*tokenizer, "max_seq_len"); !length.empty())
      settings.set("data.max_length", length, "tokenizer.max_seq_len");
    if (!text_at(*tokenizer, "prompt_template").empty())
      settings.leave_out("tokenizer.prompt_template", "data.chat_template takes the file of a template");
  }
}

}  // namespace

void import_torchtune(ForeignKeys& keys, ImportedSettings& settings) {
  const Interpolation resolved(keys);
  import_places(keys, resolved, settings);
  if (const auto model = keys.take("model"); model && model->IsMap()) import_model(*model, settings);
  if (const auto dataset = keys.take("dataset"); dataset && dataset->IsMap())
    import_dataset(*dataset, settings);
  if (const auto optimizer = keys.take("optimizer"); optimizer && optimizer->IsMap())
    import_optimizer_part(*optimizer, settings);
  import_scheduler(keys, settings);
  import_batch(keys, settings, "batch_size", 1);
  if (const auto recompute = keys.take("enable_activation_checkpointing"))
    settings.set("memory.gradient_checkpointing", is_true(*recompute) ? "true" : "false",
                 "enable_activation_checkpointing");
  if (keys.take_flag("enable_activation_offloading"))
    settings.set("memory.offload", "[activations]", "enable_activation_offloading");
  const auto clip = keys.take("clip_grad_norm");
  settings.set("training.max_grad_norm", clip ? node_as_yaml(*clip) : "0",
               clip ? "clip_grad_norm" : "torchtune without clip_grad_norm");
  if (const auto every = keys.take("log_every_n_steps"))
    settings.set("training.logging_steps", node_as_yaml(*every), "log_every_n_steps");
  if (const auto steps = keys.take("max_steps_per_epoch"))
    settings.leave_out("max_steps_per_epoch: " + node_as_yaml(*steps),
                       "training.max_steps counts the updates of the run");
  if (const auto device = keys.take_text("device"))
    settings.set("device", *device == "cuda" ? "auto" : *device, "device");
  if (keys.take_flag("optimizer_in_bwd"))
    settings.leave_out("optimizer_in_bwd",
                       "not supported; memory.offload and optimizer.name: adamw_8bit save memory");
  // Nothing has to be said for these here.
  keys.drop({"loss", "compile", "metric_logger", "log_peak_memory_stats", "log_level", "profiler",
             "cudnn_deterministic_mode", "save_adapter_weights_only", "save_last_epoch_only",
             "resume_from_checkpoint", "custom_sharded_layers", "fsdp_cpu_offload",
             "fsdp_reshard_after_forward", "clip_grad_norm", "batch_size_val", "dataset_val",
             "run_val_every_n_steps", "enable_async_checkpointing"});
}

}  // namespace trainer::config
