// LLaMA-Factory: src/llamafactory/hparams
#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

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
    settings.their_default("data.long_samples", "split", "their default for texts");
  } else if (stage != "sft" && !import_preferences_of_llama_factory(stage, keys, settings)) {
    settings.leave_out("stage: " + stage,
                       "is not supported; the rest is translated for supervised fine-tuning");
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

YAML::Node as_yaml(const nlohmann::json& json) {
  YAML::Node node;
  if (json.is_object()) {
    node = YAML::Node(YAML::NodeType::Map);
    for (const auto& [name, value] : json.items()) node.force_insert(name, as_yaml(value));
  } else if (json.is_array()) {
    node = YAML::Node(YAML::NodeType::Sequence);
    for (const auto& item : json) node.push_back(as_yaml(item));
  } else if (!json.is_null()) {
    node = YAML::Node(json.is_string() ? json.get_ref<const std::string&>() : json.dump());
  }
  return node;
}

// dataset_info.json, which says of each name where its files are; empty if it is not there.
YAML::Node read_info(const std::filesystem::path& list, ImportedSettings& settings) {
  constexpr int kDeepest = 64;
  if (!std::filesystem::is_regular_file(list)) return {};
  int deepest = 0;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    deepest = std::max(deepest, depth);
    return depth <= kDeepest;
  };
  const auto info = nlohmann::json::parse(read_file(list), watch, /*allow_exceptions=*/false);
  if (info.is_object() && deepest <= kDeepest) return as_yaml(info);
  settings.leave_out(list.string(), "is no JSON file with a mapping of names to data sets");
  return {};
}

// Why an entry of dataset_info.json has nothing here that it could become.
constexpr std::array<std::pair<const char*, const char*>, 12> kNotOfAnEntry{{
    {"subset",
     "name the files of that part in data.train, or NAME/SUBSET of a data set on the Hugging Face Hub"},
    {"split", "name the files of that part in data.train"},
    {"folder", "name the files of that part in data.train"},
    {"num_samples", "data.max_samples takes the first samples of each file"},
    {"columns", "the usual names are found by themselves; for others set data.input and data.target"},
    {"tags",
     "the fields are role and content, or from and value, the roles user, assistant, system and tool, "
     "or human and gpt; rename others"},
    {"ranking", "rows of preferences are for stage: dpo"},
    {"hf_hub_url",
     "the file is taken; for the data set on the Hugging Face Hub write its name in data.train"},
    {"ms_hub_url",
     "is not a place that is read; write a file, or a name on the Hugging Face Hub, in data.train"},
    {"om_hub_url",
     "is not a place that is read; write a file, or a name on the Hugging Face Hub, in data.train"},
    {"script_url", "no code of a data set is run; write its files in data.train"},
    {"cloud_file_name", "is not a place that is read; write a file in data.train"},
}};

void leave_out_rest_of_entry(GivenKeys& entry, ImportedSettings& settings) {
  for (const auto& [name, value] : entry.rest()) {
    const bool is_off = name == "ranking" && (!is_true(value) || settings.has("objective.name"));
    if (is_off || (name == "split" && value.IsScalar() && value.Scalar() == "train")) continue;
    const auto* known = std::ranges::find(kNotOfAnEntry, name, [](const auto& row) { return row.first; });
    const std::string full = entry.full_name(name);
    settings.leave_out(has_names_inside(value) ? with_names_inside(full, value) : full,
                       known != kNotOfAnEntry.end() ? known->second : "is not known here");
  }
}

// Returns the path or the name on the hub of a data set; "" if it has none.
std::string take_place(GivenKeys entry, const std::filesystem::path& folder, ImportedSettings& settings) {
  entry.drop({"formatting"});  // it is found in the rows
  std::string place;
  if (const auto file = entry.take_text("file_name")) {
    place = (folder / *file).string();
  } else {
    place = entry.take_text("hf_hub_url").value_or("");
  }
  leave_out_rest_of_entry(entry, settings);
  return place;
}

// Names stand in dataset_info.json, which says where the files are.
void import_dataset(GivenKeys& keys, ImportedSettings& settings) {
  const std::filesystem::path folder = keys.take_text("dataset_dir").value_or("data");
  const auto names = keys.take("dataset");
  if (!names) return;
  const std::filesystem::path list = folder / "dataset_info.json";
  const YAML::Node info = read_info(list, settings);
  std::vector<std::string> places;
  for (const std::string& name : texts_of(*names)) {
    const YAML::Node entry = info.IsMap() ? info[name] : YAML::Node();
    if (info.IsMap() && !entry.IsDefined()) {
      settings.leave_out("dataset: " + name, concat(list.string(), " does not have it; set data.train"));
    } else if (!entry.IsDefined() || !entry.IsMap()) {
      settings.leave_out("dataset: " + name, concat(list.string(),
                                                    " is not here, or has no mapping for it, which names its "
                                                    "file; set data.train"));
    } else if (std::string place =
                   take_place(GivenKeys(entry, "dataset_info.json: " + name), folder, settings);
               place.empty()) {
      settings.leave_out("dataset: " + name, concat(list.string(), " names no file of it; set data.train"));
    } else {
      places.push_back(std::move(place));
    }
  }
  if (!places.empty()) settings.set_list("data.train", places, "dataset");
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
  if (const auto tokens = keys.take("add_tokens"))  // with commas between them
    settings.set_list("model.add_tokens", texts_of(*tokens), "add_tokens");
  const auto length = keys.take("cutoff_len");
  settings.set("data.max_length", length ? node_as_yaml(*length) : "2048",
               length ? "cutoff_len" : "cutoff_len, their default");
  if (keys.has("max_samples"))
    settings.change("max_samples", "counts the samples of all files together, not of each");
  if (const auto files = keys.take("eval_dataset"))
    settings.leave_out("eval_dataset: " + node_as_yaml(*files), "name its file in data.eval");
  if (const auto method = keys.take_text("quantization_method");
      method && keys.has("quantization_bit") && *method != "bnb" && *method != "bitsandbytes")
    settings.change("quantization_method",
                    *method + " is not supported; the numbers are those of bitsandbytes");
  import_batch(keys, settings, "per_device_train_batch_size", 8);
  if (keys.take_flag("disable_gradient_checkpointing")) {
    settings.set("memory.gradient_checkpointing", "false", "disable_gradient_checkpointing");
  } else if (!keys.has("gradient_checkpointing")) {
    settings.set("memory.gradient_checkpointing", "true", "their default");
  }
  keys.drop({"trust_remote_code", "ddp_timeout"});  // nothing has to be said for these here
}

}  // namespace trainer::config
