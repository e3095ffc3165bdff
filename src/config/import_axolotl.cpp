// axolotl: https://docs.axolotl.ai/docs/config-reference.html
#include <algorithm>

#include "trainer/base/strings.h"

#include "config/import_settings.h"
#include "config/value.h"
#include "config/weight_formats.h"

namespace trainer::config {
namespace {

void import_adapter(GivenKeys& keys, ImportedSettings& settings) {
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
  if (!lora) drop_lora(keys, "without an adapter all weights are trained", settings);
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

void import_datasets(GivenKeys& keys, ImportedSettings& settings) {
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

void import_tests(GivenKeys& keys, ImportedSettings& settings) {
  const auto datasets = keys.take("test_datasets");
  if (!datasets || !datasets->IsSequence()) return;
  std::vector<std::string> paths;
  for (const auto& dataset : *datasets) {
    if (dataset.IsMap()) std::ranges::copy(paths_of(dataset), std::back_inserter(paths));
  }
  settings.set_list("data.eval", paths, "test_datasets");
  settings.set("training.eval_strategy", keys.has("eval_steps") ? "steps" : "epoch", "test_datasets");
}

}  // namespace

void import_axolotl(GivenKeys& keys, ImportedSettings& settings) {
  import_adapter(keys, settings);
  import_datasets(keys, settings);
  import_tests(keys, settings);
  import_batch(keys, settings, "micro_batch_size", 1);
  if (!keys.has("num_epochs") && !keys.has("max_steps"))
    settings.set("training.num_train_epochs", "1", "axolotl's default");
  if (!keys.has("lr_scheduler")) settings.set("optimizer.lr_scheduler_type", "cosine", "axolotl's default");
  if (const auto name = keys.take_text("chat_template"); name && *name != "tokenizer_default")
    settings.change("chat_template", concat("the model's own template is used, not ", *name,
                                            "; data.chat_template takes the file of another"));
}

}  // namespace trainer::config
