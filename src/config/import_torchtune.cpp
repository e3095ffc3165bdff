// torchtune: recipes/configs. Parts are built by name (_component_), and ${...} refers to other keys.
#include <algorithm>

#include "trainer/base/strings.h"

#include "config/import_settings.h"
#include "config/value.h"
#include "config/weight_formats.h"

namespace trainer::config {
namespace {

// "lora_qwen2_5_7b" of torchtune.models.qwen2_5.lora_qwen2_5_7b
std::string take_component(GivenKeys& part) {
  const std::string path = part.take_text("_component_").value_or("");
  return path.substr(path.rfind('.') + 1);
}

void import_model(GivenKeys model, ImportedSettings& settings) {
  const std::string name = take_component(model);
  if (name.find("lora_") == std::string::npos) return import_part(model, settings);
  settings.turn_lora_on();
  std::vector<std::string> modules;
  if (const auto attention = model.take("lora_attn_modules")) {
    for (const std::string& module : texts_of(*attention))
      modules.push_back(module == "output_proj" ? "o_proj" : module);
  }
  if (model.take_flag("apply_lora_to_mlp"))
    modules.insert(modules.end(), {"gate_proj", "up_proj", "down_proj"});
  if (model.take_flag("apply_lora_to_output")) modules.emplace_back("lm_head");
  if (!modules.empty())
    settings.set_list("lora.target_modules", modules, "model.lora_attn_modules, apply_lora_to_...");
  if (model.take_flag("quantize_base") || name.starts_with("qlora_"))
    settings.set("model.quantize", smallest_weight_format().name,
                 name.starts_with("qlora_") ? "model: " + name : "model.quantize_base");
  import_part(model, settings);
}

// Returns the files, or the name on the hub, of a data set.
std::vector<std::string> take_files(GivenKeys& dataset, const std::string& name) {
  const std::string source = dataset.take_text("source").value_or("");
  if (const auto given = dataset.take("data_files")) return texts_of(*given);
  if (!source.empty() && source != "json") return {source};
  if (name == "alpaca_dataset") return {"tatsu-lab/alpaca"};
  if (name == "alpaca_cleaned_dataset") return {"yahma/alpaca-cleaned"};
  return {};
}

// `key`: data.train or data.eval
void import_files(GivenKeys& dataset, const std::string& name, const std::string& key,
                  ImportedSettings& settings) {
  const std::string part = dataset.full_name("");
  const std::vector<std::string> files = take_files(dataset, name);
  if (files.empty()) {
    settings.leave_out(concat(part.substr(0, part.size() - 1), ": ", name),
                       concat("name its files in ", key));
  } else {
    settings.set_list(key, files, part.substr(0, part.size() - 1));
  }
  if (dataset.peek("split") && dataset.peek("split")->Scalar() == "train") dataset.drop({"split"});
  if (dataset.peek("conversation_style") && dataset.peek("conversation_style")->Scalar() == "sharegpt")
    dataset.drop({"conversation_style"});
}

// Names all that is left in a data set.
void leave_out_rest(GivenKeys& dataset, ImportedSettings& settings) {
  for (const char* name : {"split", "column_map", "new_system_prompt", "conversation_column",
                           "conversation_style", "filter_fn", "template", "prompt_template"}) {
    const auto value = dataset.take(name);
    if (!value) continue;
    const std::string full = dataset.full_name(name);
    settings.leave_out(has_names_inside(*value) ? with_names_inside(full, *value) : full,
                       "data.kind, data.input and data.target say how rows are read");
  }
  import_part(dataset, settings);
}

void import_torchtune_dataset(GivenKeys dataset, ImportedSettings& settings) {
  const std::string name = take_component(dataset);
  import_files(dataset, name, "data.train", settings);
  if (name.starts_with("alpaca")) {
    settings.set("data.kind", "chat", "dataset: " + name);
    settings.change("dataset: " + name,
                    "instruction and input are the user's message in the model's chat template");
    settings.their_default("data.loss_on", "everything", "train_on_input, their default for " + name);
    if (dataset.has("train_on_input"))
      settings.set("data.loss_on", dataset.take_flag("train_on_input") ? "everything" : "all_turns",
                   "dataset.train_on_input");
  } else if (name == "chat_dataset") {
    settings.set("data.kind", "chat", "dataset: " + name);
  } else if (name == "text_completion_dataset") {
    settings.set("data.kind", "text", "dataset: " + name);
    if (const auto column = dataset.take_text("column"))
      settings.set_text("data.input", *column, "dataset.column");
    if (dataset.has("add_eos") && !dataset.take_flag("add_eos"))
      settings.leave_out("dataset.add_eos", "the token that ends a text is always added");
  }
  if (dataset.peek("packed") && is_true(*dataset.peek("packed"))) {
    settings.change("dataset.packed", "effective_batch_size counts samples, not packed rows");
  } else {
    dataset.drop({"packed"});
  }
  leave_out_rest(dataset, settings);
}

void import_validation(GivenKeys& keys, ImportedSettings& settings) {
  if (auto dataset = keys.take_part("dataset_val")) {
    import_files(*dataset, take_component(*dataset), "data.eval", settings);
    dataset->drop({"train_on_input", "packed", "column"});  // as in dataset
    leave_out_rest(*dataset, settings);
  }
  if (const auto steps = keys.take_text("run_val_every_n_steps"); steps && settings.has("data.eval")) {
    settings.set("training.eval_strategy", "steps", "run_val_every_n_steps");
    settings.set("training.eval_steps", *steps, "run_val_every_n_steps");
  }
  if (const auto size = keys.take_text("batch_size_val"))
    settings.set("training.eval_batch_size", *size, "batch_size_val");
}

// What optimizers do without their arguments.
struct OptimizerDefaults {
  const char *learning_rate, *weight_decay;
};

OptimizerDefaults defaults_of(const std::string& optimizer) {
  if (optimizer == "Adafactor") return {"0.01", "0"};
  const bool decays = optimizer.find("AdamW") != std::string::npos;
  return {"0.001", decays ? "0.01" : "0"};
}

void import_optimizer_part(GivenKeys optimizer, ImportedSettings& settings) {
  const std::string path = optimizer.has("_component_") ? optimizer.peek("_component_")->Scalar() : "";
  const std::string name = take_component(optimizer);
  import_optimizer(name, "optimizer", settings);
  const OptimizerDefaults defaults = defaults_of(name);
  settings.their_default("optimizer.learning_rate", defaults.learning_rate, "lr, the default of " + name);
  settings.their_default("optimizer.weight_decay", defaults.weight_decay, "the default of " + name);
  if (name == "Adafactor" && path.starts_with("torch.optim")) {
    settings.their_default("optimizer.scale_parameter", "true", "as torch.optim.Adafactor always does");
    settings.change("optimizer: " + name,
                    "there the learning rate is at most 1 / sqrt(updates), too; and eps is another one");
  }
  const auto betas = optimizer.take("betas");
  if (betas && betas->IsSequence() && betas->size() == 2 && !has_names_inside(*betas)) {
    settings.set("optimizer.adam_beta1", node_as_yaml((*betas)[0]), "optimizer.betas");
    settings.set("optimizer.adam_beta2", node_as_yaml((*betas)[1]), "optimizer.betas");
  } else if (betas) {
    settings.leave_out(concat("optimizer.betas: ", node_as_yaml(*betas)), "is no list of two numbers");
  }
  optimizer.drop({"fused", "foreach"});
  if (!settings.lora())
    settings.change("optimizer.weight_decay",
                    "is not applied to norms and biases here, there to all weights");
  import_part(optimizer, settings);
}

void import_scheduler(GivenKeys& keys, ImportedSettings& settings) {
  auto scheduler = keys.take_part("lr_scheduler");
  if (!scheduler) {
    if (!keys.has("lr_scheduler"))
      settings.their_default("optimizer.lr_scheduler_type", "constant", "their default without lr_scheduler");
    return;
  }
  const std::string name = take_component(*scheduler);
  if (name.find("cosine") == std::string::npos) {
    settings.leave_out("lr_scheduler: " + name, "set optimizer.lr_scheduler_type");
  } else {
    settings.set("optimizer.lr_scheduler_type", "cosine", "lr_scheduler");
  }
  if (scheduler->peek("num_cycles") && scheduler->peek("num_cycles")->Scalar() == "0.5")
    scheduler->drop({"num_cycles"});
  import_part(*scheduler, settings);
}

void import_places(GivenKeys& keys, ImportedSettings& settings) {
  const std::string output = keys.take_text("output_dir").value_or("");
  if (!output.empty()) settings.set_text("output_dir", output, "output_dir");
  if (auto checkpointer = keys.take_part("checkpointer")) {
    constexpr std::string_view kOutput = "${output_dir}";
    std::string path = checkpointer->take_text("checkpoint_dir").value_or("");
    if (const size_t at = path.find(kOutput); at != std::string::npos)
      path.replace(at, kOutput.size(), output);
    if (!path.empty()) settings.set_text("model.path", path, "checkpointer.checkpoint_dir");
    const std::string kind = take_component(*checkpointer);
    if (kind == "FullModelMetaCheckpointer")
      settings.change("checkpointer",
                      "files of Meta's format are not read; the directory must be that of Hugging Face");
    if (checkpointer->take("adapter_checkpoint"))
      settings.leave_out("checkpointer.adapter_checkpoint", "lora.adapter takes the directory of an adapter");
    // All files of the directory are read, and what they hold is in their headers.
    checkpointer->take("checkpoint_files");
    checkpointer->drop({"model_type", "output_dir", "recipe_checkpoint", "safe_serialization"});
    import_part(*checkpointer, settings);
  }
  if (auto tokenizer = keys.take_part("tokenizer")) {
    take_component(*tokenizer);  // it is read from the model's files, and so are these
    tokenizer->drop({"path", "merges_file", "special_tokens_path", "special_tokens"});
    if (tokenizer->take_text("prompt_template"))
      settings.leave_out("tokenizer.prompt_template", "data.chat_template takes the file of a template");
    import_part(*tokenizer, settings);
  }
}

// Parts that do not change what is learned.
void import_surroundings(GivenKeys& keys, ImportedSettings& settings) {
  if (auto loss = keys.take_part("loss")) {
    const std::string name = take_component(*loss);
    if (name.find("CrossEntropy") == std::string::npos && name.find("CEWith") == std::string::npos)
      settings.leave_out("loss: " + name, "the loss is the cross-entropy of tokens");
    loss->drop({"num_output_chunks", "tiling_strategy", "tile_size"});
    import_part(*loss, settings);
  }
  if (auto logger = keys.take_part("metric_logger")) {
    const std::string name = take_component(*logger);
    const size_t end = name.rfind("Logger");  // WandBLogger, MLFlowLogger
    import_service(name.substr(0, end), "metric_logger: " + name, settings);
    logger->drop({"log_dir", "output_dir"});
    import_part(*logger, settings);
  }
  if (auto profiler = keys.take_part("profiler")) {
    take_component(*profiler);
    if (profiler->take_flag("enabled")) settings.leave_out("profiler.enabled", "there is no profiler here");
    profiler->drop({"output_dir", "cpu", "cuda", "profile_memory", "with_stack", "record_shapes",
                    "with_flops", "wait_steps", "warmup_steps", "active_steps", "num_cycles"});
    import_part(*profiler, settings);
  }
  for (const char* name : {"compile", "fsdp_cpu_offload", "save_adapter_weights_only", "low_cpu_ram"}) {
    if (keys.take_flag(name))
      settings.leave_out(name, "is not supported; nothing else is learned without it");
  }
  // Nothing has to be said for these here.
  keys.drop({"log_peak_memory_stats", "log_level", "cudnn_deterministic_mode", "save_last_epoch_only",
             "resume_from_checkpoint", "custom_sharded_layers", "fsdp_reshard_after_forward",
             "enable_async_checkpointing"});
}

}  // namespace

void import_torchtune(GivenKeys& keys, ImportedSettings& settings) {
  import_places(keys, settings);
  if (auto model = keys.take_part("model")) import_model(*model, settings);
  if (auto dataset = keys.take_part("dataset")) import_torchtune_dataset(*dataset, settings);
  import_validation(keys, settings);
  if (auto optimizer = keys.take_part("optimizer")) import_optimizer_part(*optimizer, settings);
  import_scheduler(keys, settings);
  import_batch(keys, settings, "batch_size", 1);
  if (const auto clip = keys.take("clip_grad_norm"))
    settings.set("training.max_grad_norm", node_as_yaml(*clip), "clip_grad_norm");
  if (const auto device = keys.take_text("device"))
    settings.set("device", *device == "cuda" ? "auto" : *device, "device");
  import_surroundings(keys, settings);
}

}  // namespace trainer::config
