// axolotl: https://docs.axolotl.ai/docs/config-reference.html
#include <algorithm>

#include "trainer/base/strings.h"

#include "config/import_settings.h"
#include "config/value.h"
#include "config/weight_formats.h"

namespace trainer::config {
namespace {

void import_adapter(ForeignKeys& keys, ImportedSettings& settings) {
  const std::string adapter = keys.take_text("adapter").value_or("");
  const bool lora = adapter == "lora" || adapter == "qlora" || adapter == "dora";
  if (!adapter.empty() && !lora) settings.leave_out("adapter", adapter + " is not supported; there is LoRA");
  if (lora) settings.turn_lora_on();
  if (adapter == "qlora") settings.set("model.quantize", smallest_weight_format().name, "adapter: qlora");
  if (adapter == "dora") settings.set("lora.use_dora", "true", "adapter: dora");
  if (adapter == "qlora") keys.drop({"load_in_4bit"});
  if (adapter == "lora" && keys.has("load_in_8bit")) {
    const bool asked = keys.take_flag("load_in_8bit");
    if (asked)
      settings.change("load_in_8bit",
                      concat("8 bits are not supported: the weights stay in 16; model.quantize: ",
                             smallest_weight_format().name, " has 4"));
  }
  const std::vector<std::string> names{"lora_r",
                                       "lora_alpha",
                                       "lora_dropout",
                                       "lora_target_modules",
                                       "lora_target_linear",
                                       "lora_modules_to_save",
                                       "lora_model_dir",
                                       "peft_use_dora",
                                       "peft_use_rslora"};
  if (!lora) {
    for (const std::string& name : names) {
      if (keys.has(name)) settings.leave_out(name, "without an adapter all weights are trained");
      keys.drop({name});
    }
    return;
  }
  const std::pair<const char*, const char*> plain[] = {{"lora_r", "lora.r"},
                                                       {"lora_alpha", "lora.lora_alpha"},
                                                       {"lora_dropout", "lora.lora_dropout"},
                                                       {"lora_modules_to_save", "lora.modules_to_save"},
                                                       {"peft_use_dora", "lora.use_dora"},
                                                       {"peft_use_rslora", "lora.use_rslora"}};
  for (const auto& [name, key] : plain) {
    if (const auto value = keys.take(name)) settings.set(key, node_as_yaml(*value), name);
  }
  if (const auto directory = keys.take_text("lora_model_dir"))
    settings.set_text("lora.adapter", *directory, "lora_model_dir");
  const auto modules = keys.take("lora_target_modules");
  if (modules && modules->IsScalar())
    settings.set_text("lora.target_modules", modules->Scalar(), "lora_target_modules");
  if (modules && !modules->IsScalar())
    settings.set_list("lora.target_modules", texts_of(*modules), "lora_target_modules");
  if (keys.take_flag("lora_target_linear"))
    settings.set("lora.target_modules", "all-linear", "lora_target_linear");
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// type: {field_instruction: q, field_output: a, format: "{instruction} {input}"}
void import_fields(const YAML::Node& type, ImportedSettings& settings) {
  const std::string format = text_at(type, "format", text_at(type, "no_input_format", "{instruction}"));
  std::string input =
      replaced(format, "{instruction}", "{" + text_at(type, "field_instruction", "instruction") + "}");
  input = replaced(input, "{input}", "{" + text_at(type, "field_input", "input") + "}");
  settings.set("data.kind", "completion", "datasets.type");
  settings.set_text("data.input", input, "datasets.type.format");
  settings.set_text("data.target", text_at(type, "field_output", "output"), "datasets.type.field_output");
  for (const char* name : {"field_system", "system_prompt", "system_format"}) {
    if (!text_at(type, name).empty())
      settings.leave_out(concat("datasets.type.", name), "write it into the template of data.input");
  }
}

void import_type(const YAML::Node& dataset, ImportedSettings& settings) {
  const YAML::Node type = dataset["type"];
  if (type.IsDefined() && type.IsMap()) return import_fields(type, settings);
  const std::string name = text_at(dataset, "type");
  const std::string kind = name.substr(0, name.find('.'));
  if (kind == "alpaca" || kind == "alpaca_chat") {
    settings.set("data.kind", "chat", "datasets.type: " + name);
    settings.change(
        "datasets.type: " + name,
        "instruction and input are the user's message in the model's own chat template; the sentence "
        "\"Below is an instruction ...\" is not added");
  } else if (kind == "chat_template" || kind == "sharegpt") {
    settings.set("data.kind", "chat", "datasets.type: " + name);
    const std::string field = text_at(dataset, "field_messages", "messages");
    if (field != "messages" && field != "conversations")
      settings.leave_out("datasets.field_messages", concat("rename the field ", field, " to messages"));
    if (dataset["message_property_mappings"].IsDefined() || dataset["message_field_role"].IsDefined())
      settings.leave_out("datasets: names of role and content",
                         "they are role and content, or from and value; rename others");
    if (dataset["roles_to_train"].IsDefined() || dataset["train_on_eos"].IsDefined())
      settings.change("datasets.roles_to_train, train_on_eos",
                      "the assistant's answers are learned, with the token that ends them (data.loss_on)");
  } else if (kind == "completion" || kind == "pretrain") {
    settings.set("data.kind", "text", "datasets.type: " + name);
    settings.set_text("data.input", text_at(dataset, "field", "text"), "datasets.field");
  } else if (!name.empty()) {
    settings.leave_out("datasets.type: " + name,
                       "say which fields are read: data.kind, data.input and data.target");
  }
}

std::vector<std::string> paths_of(const YAML::Node& dataset) {
  const YAML::Node files = dataset["data_files"];
  if (files.IsDefined() && !files.IsNull()) return texts_of(files);
  return {text_at(dataset, "path")};
}

void import_datasets(ForeignKeys& keys, ImportedSettings& settings) {
  const auto datasets = keys.take("datasets");
  if (!datasets) return;
  std::vector<std::string> paths;
  std::vector<YAML::Node> list;
  if (datasets->IsSequence()) {
    for (const auto& dataset : *datasets) list.push_back(dataset);
  } else {
    list.push_back(*datasets);
  }
  std::string first_type;
  for (const YAML::Node& dataset : list) {
    if (!dataset.IsMap()) continue;
    std::ranges::copy(paths_of(dataset), std::back_inserter(paths));
    const std::string type = dataset["type"].IsDefined() ? node_as_yaml(dataset["type"]) : "";
    if (paths.size() == 1 || first_type.empty()) {
      first_type = type;
      import_type(dataset, settings);
    } else if (type != first_type) {
      settings.leave_out(
          concat("datasets.type of ", paths.back()),
          "all files of a run have the same kind of rows here; write those of this one as the first");
    }
    for (const char* name : {"shards", "name", "revision", "trust_remote_code"}) {
      if (!text_at(dataset, name).empty())
        settings.leave_out(concat("datasets.", name, ": ", text_at(dataset, name)), "is not supported");
    }
    const std::string split = text_at(dataset, "split", "train");
    if (split != "train")
      settings.leave_out("datasets.split: " + split, "name the files of that part in data.train");
  }
  std::erase(paths, "");
  if (paths.empty()) {
    settings.leave_out("datasets", "no path in it was understood; set data.train");
  } else {
    settings.set_list("data.train", paths, "datasets");
  }
}

void import_tests(ForeignKeys& keys, ImportedSettings& settings) {
  const auto datasets = keys.take("test_datasets");
  if (!datasets || !datasets->IsSequence()) return;
  std::vector<std::string> paths;
  for (const auto& dataset : *datasets) {
    if (dataset.IsMap()) std::ranges::copy(paths_of(dataset), std::back_inserter(paths));
  }
  settings.set_list("data.eval", paths, "test_datasets");
  settings.set("training.eval_strategy", keys.has("eval_steps") ? "steps" : "epoch", "test_datasets");
}

// N times an epoch: the number of updates in an epoch is not known here.
void import_per_epoch(ForeignKeys& keys, ImportedSettings& settings, const std::string& name,
                      const std::string& key) {
  const auto times = keys.take_number(name);
  if (!times || *times <= 0) return;
  settings.set(key, "epoch", name);
  if (*times != 1)
    settings.change(
        name, concat("once an epoch, not ", *times, " times; for more give steps and a number of updates"));
}

}  // namespace

void import_axolotl(ForeignKeys& keys, ImportedSettings& settings) {
  if (const auto model = keys.take_text("base_model")) settings.set_text("model.path", *model, "base_model");
  import_adapter(keys, settings);
  import_datasets(keys, settings);
  import_tests(keys, settings);
  import_held_out(keys, settings, "val_set_size");
  if (const auto length = keys.take("sequence_len"))
    settings.set("data.max_length", node_as_yaml(*length), "sequence_len");
  if (keys.take_flag("sample_packing")) {
    settings.set("data.packing", "true", "sample_packing");
    settings.change("sample_packing",
                    "there micro_batch_size counts packed rows, each of several samples; here "
                    "effective_batch_size counts samples. For as many tokens in an update, make it larger");
  }
  import_batch(keys, settings, "micro_batch_size", 1);
  if (!keys.has("num_epochs") && !keys.has("max_steps"))
    settings.set("training.num_train_epochs", "1", "axolotl's default");
  if (!keys.has("lr_scheduler")) settings.set("optimizer.lr_scheduler_type", "cosine", "axolotl's default");
  if (keys.take_flag("train_on_inputs")) {
    settings.set("data.loss_on", "everything", "train_on_inputs");
  }
  import_per_epoch(keys, settings, "evals_per_epoch", "training.eval_strategy");
  import_per_epoch(keys, settings, "saves_per_epoch", "save.strategy");
  if (const auto name = keys.take_text("chat_template"); name && *name != "tokenizer_default")
    settings.change("chat_template", concat("the model's own template is used, not ", *name,
                                            "; data.chat_template takes the file of another"));
  if (const auto tokens = keys.take("tokens"))
    settings.set_list("model.add_tokens", texts_of(*tokens), "tokens");
  // Nothing has to be said for these here.
  keys.drop({"model_type", "tokenizer_type", "base_model_config", "pad_to_sequence_len",
             "eval_sample_packing", "dataset_prepared_path", "flash_attention", "xformers_attention",
             "sdp_attention", "is_llama_derived_model", "is_qwen_derived_model", "is_mistral_derived_model",
             "strict", "debug", "lora_fan_in_fan_out"});
}

}  // namespace trainer::config
