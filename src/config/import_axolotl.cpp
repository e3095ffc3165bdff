// axolotl: https://docs.axolotl.ai/docs/config-reference.html
#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

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
void import_fields(GivenKeys type, ImportedSettings& settings) {
  const auto without_input = type.take_text("no_input_format");
  const std::string format = type.take_text("format").value_or(without_input.value_or("{instruction}"));
  const std::string instruction = type.take_text("field_instruction").value_or("instruction");
  std::string input = replaced(format, "{instruction}", "{" + instruction + "}");
  input = replaced(input, "{input}", "{" + type.take_text("field_input").value_or("input") + "}");
  settings.set("data.kind", "completion", type.full_name("format"));
  settings.set_text("data.input", input, type.full_name("format"));
  settings.set_text("data.target", type.take_text("field_output").value_or("output"),
                    type.full_name("field_output"));
  if (without_input && format != *without_input)
    settings.leave_out(type.full_name("no_input_format"), "rows without an input have the same template");
  for (const char* name : {"field_system", "system_prompt", "system_format"}) {
    if (type.take(name)) settings.leave_out(type.full_name(name), "write it into the template of data.input");
  }
  import_part(type, settings);
}

// What the rows of a conversation are called, and which of them are learned.
void import_conversation(GivenKeys& dataset, ImportedSettings& settings) {
  const std::string field = dataset.take_text("field_messages").value_or("messages");
  if (field != "messages" && field != "conversations")
    settings.leave_out(dataset.full_name("field_messages"),
                       concat("rename the field ", field, " to messages"));
  if (dataset.take_text("field_tools").value_or("tools") != "tools")
    settings.leave_out(dataset.full_name("field_tools"), "rename the field to tools");
  using Default = std::pair<const char*, const char*>;
  for (const auto& [name, usual] : {Default{"roles_to_train", "[assistant]"}, Default{"train_on_eos", "turn"},
                                    Default{"train_on_eot", "turn"}}) {
    const auto value = dataset.take(name);
    if (value && node_as_yaml(*value) != usual)
      settings.leave_out(
          concat(dataset.full_name(name), ": ", node_as_yaml(*value)),
          "the assistant's answers are learned, each with the token that ends it (data.loss_on)");
  }
}

void import_type(GivenKeys& dataset, ImportedSettings& settings) {
  const bool preferences = settings.has("objective.name");  // their fields are found in the rows
  if (const auto fields = preferences ? std::nullopt : dataset.take_part("type"))
    return import_fields(*fields, settings);
  const std::string name = dataset.take_text("type").value_or("");
  if (preferences) return;
  const std::string kind = name.substr(0, name.find('.')), from = dataset.full_name("type") + ": " + name;
  if (kind == "alpaca" || kind == "alpaca_chat") {
    settings.set("data.kind", "chat", from);
    settings.change(
        from,
        "instruction and input are the user's message in the model's own chat template; the sentence "
        "\"Below is an instruction ...\" is not added");
  } else if (kind == "chat_template" || kind == "sharegpt") {
    settings.set("data.kind", "chat", from);
    import_conversation(dataset, settings);
  } else if (kind == "completion" || kind == "pretrain") {
    settings.set("data.kind", "text", from);
    settings.set_text("data.input", dataset.take_text("field").value_or("text"), dataset.full_name("field"));
    settings.their_default("data.long_samples", "split", "their default for texts");
  } else if (kind == "input_output") {
    settings.set("data.kind", "completion", from + ": segments");
  } else if (!name.empty()) {
    settings.leave_out(from, "say which fields are read: data.kind, data.input and data.target");
  }
}

// "data.train" has no list of files beside the name of a data set: they are written as NAME/FILE.
bool is_name_on_the_hub(const std::string& path) {
  std::error_code ignored;
  return std::ranges::count(path, '/') == 1 && path.find_first_of(".:~") != 0 && !path.starts_with('/') &&
         !std::filesystem::path(path).has_extension() && !std::filesystem::exists(path, ignored);
}

struct Paths {
  std::vector<std::string> list;
  std::string from;
};

Paths take_paths(GivenKeys& dataset, ImportedSettings& settings) {
  const std::string path = dataset.take_text("path").value_or("");
  const auto files = dataset.take("data_files");
  if (!files) return {{path}, dataset.full_name("path")};
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    settings.leave_out(dataset.full_name("data_files"), "is passed over there, because path is a file");
    return {{path}, dataset.full_name("path")};
  }
  Paths paths{texts_of(*files), dataset.full_name("data_files")};
  if (is_name_on_the_hub(path)) {
    for (std::string& file : paths.list) file = path + "/" + file;
  }
  return paths;
}

// Why an entry of a data set has nothing here that it could become.
constexpr std::array<std::pair<const char*, const char*>, 24> kNotOfADataset{{
    {"split", "name the files of that part in data.train"},
    {"name",
     "name the files of that part in data.train, or NAME/SUBSET of a data set on the Hugging Face Hub"},
    {"revision", "write it behind the name: NAME@REVISION (docs/model-names.md)"},
    {"shards", "data.max_samples takes the first samples of a file"},
    {"shards_idx", "data.max_samples takes the first samples of a file"},
    {"preprocess_shards", "the data is read in pieces anyway"},
    {"trust_remote_code", "no code of a data set is run"},
    {"ds_type", "the kind of a file follows from its name"},
    {"conversation", "the model's own chat template is used; data.chat_template takes the file of another"},
    {"chat_template", "the model's own is used; data.chat_template takes the file of another"},
    {"chat_template_jinja", "write it to a file, and name that in data.chat_template"},
    {"message_property_mappings", "the fields are role and content, or from and value; rename others"},
    {"message_field_role", "the fields are role and content, or from and value; rename others"},
    {"message_field_content", "the fields are role and content, or from and value; rename others"},
    {"message_field_training", "data.loss_on says which answers are learned (docs/data.md)"},
    {"message_field_training_detail", "an answer is learned as a whole, or not at all"},
    {"roles", "roles are user, assistant, system and tool, or human and gpt; rename others"},
    {"field_system", "write it as the first message, with the role system"},
    {"drop_system_message", "remove the system messages from the rows"},
    {"field_thinking", "rename the field as the model's chat template calls it"},
    {"template_thinking_key", "rename the field as the model's chat template calls it"},
    {"split_thinking", "write the thoughts into a field that the model's chat template reads"},
    {"eot_tokens", "what ends an answer is found in the chat template"},
    {"input_transform", "change the rows before"},
}};

// Names all that is left in a data set.
void leave_out_rest_of_dataset(GivenKeys& dataset, ImportedSettings& settings) {
  dataset.drop({"preprocess_shards"});
  if (dataset.peek("split") && dataset.peek("split")->Scalar() == "train") dataset.drop({"split"});
  if (dataset.peek("trust_remote_code") && !is_true(*dataset.peek("trust_remote_code")))
    dataset.drop({"trust_remote_code"});
  for (const auto& [name, value] : dataset.rest()) {
    const auto* known = std::ranges::find(kNotOfADataset, name, [](const auto& row) { return row.first; });
    const std::string full = dataset.full_name(name);
    settings.leave_out(has_names_inside(value) ? with_names_inside(full, value) : full,
                       known != kNotOfADataset.end() ? known->second : "is not known here");
  }
}

std::vector<YAML::Node> items_of(const YAML::Node& value) {
  if (!value.IsSequence()) return {value};
  return {value.begin(), value.end()};
}

void import_datasets(GivenKeys& keys, ImportedSettings& settings) {
  const auto datasets = keys.take("datasets");
  if (!datasets) return;
  std::vector<std::string> paths;
  std::string first_type, from;
  for (const YAML::Node& item : items_of(*datasets)) {
    if (!item.IsMap()) {
      settings.leave_out("datasets: " + node_as_yaml(item), "is no data set: a mapping with a path");
      continue;
    }
    GivenKeys dataset(item, "datasets");
    const Paths here = take_paths(dataset, settings);
    std::ranges::copy(here.list, std::back_inserter(paths));
    if (from.find(here.from) == std::string::npos) from += (from.empty() ? "" : ", ") + here.from;
    const std::string type = dataset.has("type") ? node_as_yaml(*dataset.peek("type")) : "";
    if (first_type.empty()) {
      first_type = type;
      import_type(dataset, settings);
    } else if (type != first_type) {
      settings.leave_out(
          concat("datasets.type of ", paths.empty() ? "" : paths.back(), ": ", type),
          "all files of a run have the same kind of rows here; write those of this one as the first");
      dataset.take("type");
    } else {
      dataset.take("type");  // the same again
      if (type.starts_with("chat_template") || type.starts_with("sharegpt"))
        import_conversation(dataset, settings);
    }
    leave_out_rest_of_dataset(dataset, settings);
  }
  std::erase(paths, "");
  if (paths.empty()) {
    settings.leave_out("datasets", "no path in it was understood; set data.train");
  } else {
    settings.set_list("data.train", paths, from);
  }
}

void import_tests(GivenKeys& keys, ImportedSettings& settings) {
  const auto datasets = keys.take("test_datasets");
  if (!datasets) return;
  std::vector<std::string> paths;
  for (const YAML::Node& item : items_of(*datasets)) {
    if (!item.IsMap()) {
      settings.leave_out("test_datasets: " + node_as_yaml(item), "is no data set: a mapping with a path");
      continue;
    }
    GivenKeys dataset(item, "test_datasets");
    std::ranges::copy(take_paths(dataset, settings).list, std::back_inserter(paths));
    if (!dataset.has("type") || !dataset.peek("type")->IsMap()) dataset.take("type");  // as in datasets
    leave_out_rest_of_dataset(dataset, settings);
  }
  std::erase(paths, "");
  if (!paths.empty()) settings.set_list("data.eval", paths, "test_datasets");
}

}  // namespace

void import_axolotl(GivenKeys& keys, ImportedSettings& settings) {
  import_adapter(keys, settings);
  import_preferences_of_axolotl(keys, settings);
  import_datasets(keys, settings);
  import_tests(keys, settings);
  import_batch(keys, settings, "micro_batch_size", 1, "batch_size");
  if (const auto strategy = keys.take_text("excess_length_strategy")) {
    if (*strategy == "raise") {
      settings.set("data.max_truncated", "0", "excess_length_strategy: raise");
    } else {
      settings.set("data.long_samples", *strategy, "excess_length_strategy");
    }
  }
  if (const auto name = keys.take_text("chat_template"); name && *name != "tokenizer_default")
    settings.change("chat_template", concat("the model's own template is used, not ", *name,
                                            "; data.chat_template takes the file of another"));
}

}  // namespace trainer::config
