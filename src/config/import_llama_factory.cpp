// LLaMA-Factory: src/llamafactory/hparams
#include <filesystem>

#include <nlohmann/json.hpp>

#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "config/import_settings.h"
#include "config/value.h"

namespace trainer::config {
namespace {

void import_method(GivenKeys& keys, ImportedSettings& settings) {
  const std::string stage = keys.take_text("stage").value_or("sft");
  if (stage == "pt") {
    settings.set("data.kind", "text", "stage: pt");
  } else if (stage != "sft") {
    settings.leave_out("stage: " + stage,
                       "only supervised fine-tuning is supported; the rest is translated for it");
  }
  const std::string type = keys.take_text("finetuning_type").value_or("lora");
  if (type == "lora") settings.turn_lora_on();
  if (type != "lora" && type != "full")
    settings.leave_out("finetuning_type: " + type,
                       "all weights are trained; a section `lora: {}` trains LoRA");
  if (!settings.lora()) return drop_lora(keys, "", settings);
  const double rank = keys.take_number("lora_rank").value_or(8);
  const auto alpha = keys.take_number("lora_alpha");
  settings.set("lora.r", number_as_yaml(rank).substr(0, number_as_yaml(rank).find('.')), "lora_rank");
  settings.set("lora.lora_alpha", number_as_yaml(alpha.value_or(2 * rank)),
               alpha ? "lora_alpha" : "2 x lora_rank, their default");
  const auto target = keys.take("lora_target");
  if (!target || node_as_yaml(*target) == "all") {
    settings.set("lora.target_modules", "all-linear",
                 target ? "lora_target" : "lora_target: all, their default");
  } else {
    settings.set_list("lora.target_modules", texts_of(*target), "lora_target");
  }
}

// Names stand in dataset_info.json, which says where the files are.
void import_dataset(GivenKeys& keys, ImportedSettings& settings) {
  const std::filesystem::path folder = keys.take_text("dataset_dir").value_or("data");
  const auto names = keys.take("dataset");
  if (!names) return;
  const std::filesystem::path list = folder / "dataset_info.json";
  nlohmann::json info;
  if (std::filesystem::is_regular_file(list))
    info = nlohmann::json::parse(read_file(list), nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> files;
  for (const std::string& name : texts_of(*names)) {
    if (info.is_object() && info.contains(name) && info[name].contains("file_name")) {
      files.push_back((folder / info[name]["file_name"].get<std::string>()).string());
      if (info[name].contains("columns"))
        settings.leave_out(
            concat("columns of ", name),
            "the usual names are found by themselves; for others set data.input and data.target");
      if (info[name].value("ranking", false))
        settings.leave_out("dataset " + name, "holds preferences (ranking), which are not supported");
    } else if (info.is_object() && info.contains(name) && info[name].contains("hf_hub_url")) {
      files.push_back(info[name]["hf_hub_url"].get<std::string>());
    } else {
      settings.leave_out("dataset: " + name,
                         concat(list.string(), " is not here, which names its file; set data.train"));
    }
  }
  if (!files.empty()) settings.set_list("data.train", files, "dataset");
  if (!settings.has("data.kind")) {
    settings.set("data.kind", "chat", "template");
  }
}

}  // namespace

void import_llama_factory(GivenKeys& keys, ImportedSettings& settings) {
  import_method(keys, settings);
  import_dataset(keys, settings);
  if (const auto name = keys.take_text("template"))
    settings.change("template", concat("the model's own chat template is used, not LLaMA-Factory's ", *name,
                                       "; look at `trainer tokenize --chat`"));
  const auto length = keys.take("cutoff_len");
  settings.set("data.max_length", length ? node_as_yaml(*length) : "2048",
               length ? "cutoff_len" : "cutoff_len, their default");
  if (keys.has("max_samples"))
    settings.change("max_samples", "counts the samples of all files together, not of each");
  if (const auto files = keys.take("eval_dataset"))
    settings.leave_out("eval_dataset: " + node_as_yaml(*files), "name its file in data.eval");
  import_batch(keys, settings, "per_device_train_batch_size", 8);
  if (const auto value = keys.take("disable_gradient_checkpointing"); value && is_true(*value))
    settings.set("memory.gradient_checkpointing", "false", "disable_gradient_checkpointing");
  else if (!keys.has("gradient_checkpointing"))
    settings.set("memory.gradient_checkpointing", "true", "LLaMA-Factory's default");
  keys.drop({"trust_remote_code", "ddp_timeout"});  // nothing has to be said for these here
}

}  // namespace trainer::config
