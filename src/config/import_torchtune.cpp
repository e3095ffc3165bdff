// torchtune: recipes/configs. Parts are built by name (_component_), and ${...} refers to other keys.
#include <algorithm>

#include "trainer/base/strings.h"

#include "config/import_settings.h"
#include "config/value.h"
#include "config/weight_formats.h"

namespace trainer::config {
namespace {

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
  import_part(model, "model", settings);
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
  import_part(dataset, "dataset", settings);
  if (flag(dataset, "packed"))
    settings.change("dataset.packed", "effective_batch_size counts samples, not packed rows");
  for (const char* other :
       {"split", "column_map", "new_system_prompt", "conversation_column", "conversation_style"}) {
    const YAML::Node value = dataset[other];
    if (value.IsDefined() && !value.IsNull() &&
        !(value.IsScalar() && (value.Scalar() == "train" || value.Scalar() == "sharegpt")))
      settings.leave_out(concat("dataset.", other),
                         "data.kind, data.input and data.target say how rows are read");
  }
}

void import_scheduler(GivenKeys& keys, ImportedSettings& settings) {
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
  if (scheduler->IsMap()) import_part(*scheduler, "lr_scheduler", settings);
}

void import_places(GivenKeys& keys, ImportedSettings& settings) {
  const std::string output = keys.take_text("output_dir").value_or("");
  if (!output.empty()) settings.set_text("output_dir", output, "output_dir");
  if (const auto checkpointer = keys.take("checkpointer"); checkpointer && checkpointer->IsMap()) {
    constexpr std::string_view kOutput = "${output_dir}";
    std::string path = text_at(*checkpointer, "checkpoint_dir");
    if (const size_t at = path.find(kOutput); at != std::string::npos)
      path.replace(at, kOutput.size(), output);
    if (!path.empty()) settings.set_text("model.path", path, "checkpointer.checkpoint_dir");
    const std::string kind = component(*checkpointer);
    if (kind == "FullModelMetaCheckpointer")
      settings.change("checkpointer",
                      "files of Meta's format are not read; the directory must be that of Hugging Face");
  }
  if (const auto tokenizer = keys.take("tokenizer"); tokenizer && tokenizer->IsMap()) {
    import_part(*tokenizer, "tokenizer", settings);
    if (!text_at(*tokenizer, "prompt_template").empty())
      settings.leave_out("tokenizer.prompt_template", "data.chat_template takes the file of a template");
  }
}

}  // namespace

void import_torchtune(GivenKeys& keys, ImportedSettings& settings) {
  import_places(keys, settings);
  if (const auto model = keys.take("model"); model && model->IsMap()) import_model(*model, settings);
  if (const auto dataset = keys.take("dataset"); dataset && dataset->IsMap())
    import_dataset(*dataset, settings);
  if (const auto optimizer = keys.take("optimizer"); optimizer && optimizer->IsMap()) {
    import_optimizer(component(*optimizer), "optimizer", settings);
    import_part(*optimizer, "optimizer", settings);
  }
  import_scheduler(keys, settings);
  import_batch(keys, settings, "batch_size", 1);
  const auto clip = keys.take("clip_grad_norm");
  settings.set("training.max_grad_norm", clip ? node_as_yaml(*clip) : "0",
               clip ? "clip_grad_norm" : "torchtune without clip_grad_norm");
  if (const auto device = keys.take_text("device"))
    settings.set("device", *device == "cuda" ? "auto" : *device, "device");
  // Nothing has to be said for these here.
  keys.drop({"loss", "compile", "metric_logger", "log_peak_memory_stats", "log_level", "profiler",
             "cudnn_deterministic_mode", "save_adapter_weights_only", "save_last_epoch_only",
             "resume_from_checkpoint", "custom_sharded_layers", "fsdp_cpu_offload",
             "fsdp_reshard_after_forward", "clip_grad_norm", "batch_size_val", "dataset_val",
             "run_val_every_n_steps", "enable_async_checkpointing"});
}

}  // namespace trainer::config
