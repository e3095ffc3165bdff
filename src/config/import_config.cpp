#include "config/import_config.h"

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/file_facts.h"
#include "base/not_text.h"
#include "base/yaml_text.h"
#include "config/import_settings.h"

namespace trainer {
namespace {

using config::GivenKeys;

std::string place_of(const std::filesystem::path& file, const YAML::Mark& mark) {
  return concat(file.string(), ":", mark.line + 1, ":", mark.column + 1, ": ");
}

YAML::Node read_mapping(const std::filesystem::path& file) {
  if (file.extension() == ".bin" || file.extension() == ".pt") {
    throw ConfigError(concat(file.string(),
                             ": a pickle is not read; write the arguments as JSON: "
                             "python -c \"import torch; print(torch.load('",
                             file.string(), "', weights_only=False).to_json_string())\" > arguments.json"));
  }
  if (!std::filesystem::exists(file))
    throw ConfigError(concat(file.string(), ": does not exist"), ExitCode::files);
  const std::string text = read_file(file);
  if (const std::string why = why_no_text(text); !why.empty())
    throw ConfigError(concat(file.string(), ": ", why));
  YAML::Node root;
  try {
    root = with_merged_keys(parse_yaml(text));
    std::vector<RepeatedKey> repeated = repeated_keys(text);
    std::erase_if(repeated, [](const RepeatedKey& key) { return key.name == "<<"; });  // all are merged
    if (!repeated.empty()) {
      const RepeatedKey& key = repeated.front();
      throw ConfigError(concat(place_of(file, key.mark), one_line(key.name, 100),
                               " is given twice; the first is at line ", key.first.line + 1,
                               ". Remove one of them"));
    }
  } catch (const YAML::Exception& error) {
    throw ConfigError(concat(place_of(file, error.mark), yaml_problem(error, text)));
  }
  if (!root.IsMap()) throw ConfigError(file.string() + ": is not a mapping of keys to values");
  if (root.size() == 0) throw ConfigError(file.string() + ": has no keys");
  for (const auto& entry : root) {
    if (!entry.first.IsScalar()) throw ConfigError(file.string() + ": has a key that is no name");
  }
  return root;
}

bool has_any(const YAML::Node& root, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (root[name].IsDefined()) return true;
  }
  return false;
}

bool is_torchtune(const YAML::Node& root) {
  for (const auto& entry : root) {
    if (entry.second.IsMap() && entry.second["_component_"].IsDefined()) return true;
  }
  return false;
}

using Keys = GivenKeys;
using Settings = config::ImportedSettings;

struct Origin {
  const char* name;
  void (*import)(Keys& keys, Settings& settings);
  void (*add_defaults)(const Keys& keys, Settings& settings);
};

void import_arguments(Keys& keys, Settings& settings) {
  import_batch(keys, settings, "per_device_train_batch_size", 8);
}

// The scripts of TRL: LoRA is a switch, and the data is a name on the hub.
void import_trl(Keys& keys, Settings& settings) {
  import_arguments(keys, settings);
  import_preferences_of_trl(keys, settings);
  if (keys.take_flag("use_peft")) {
    settings.turn_lora_on();
  } else {
    drop_lora(keys, "without use_peft all weights are trained", settings);
  }
  if (const auto name = keys.take("dataset_name"))
    settings.set_list("data.train", config::texts_of(*name), "dataset_name");
  if (keys.given_text("dataset_train_split").value_or("") == "train") keys.drop({"dataset_train_split"});
}

// Keys of TRL's scripts that TrainingArguments does not have.
constexpr auto kOfTrl = {
    "use_peft",       "dataset_text_field",  "assistant_only_loss", "completion_only_loss",
    "dataset_kwargs", "dataset_train_split", "dataset_test_split",  "chat_template_path",
    "padding_free",   "eval_packing",        "packing_strategy",    "loss_type",
    "beta",           "desirable_weight",    "cpo_alpha",           "precompute_ref_log_probs"};

Origin origin_of(const YAML::Node& root) {
  if (is_torchtune(root)) return {"torchtune", config::import_torchtune, config::add_defaults_of_torchtune};
  if (has_any(root, {"finetuning_type", "cutoff_len", "dataset_dir", "stage", "quantization_bit"}))
    return {"LLaMA-Factory", config::import_llama_factory, config::add_defaults_of_llama_factory};
  if (has_any(root, {"base_model", "micro_batch_size", "sequence_len", "datasets"}))
    return {"axolotl", config::import_axolotl, config::add_defaults_of_axolotl};
  if (has_any(root, kOfTrl)) return {"Hugging Face TRL", import_trl, config::add_defaults_of_trl};
  return {"Hugging Face TrainingArguments", import_arguments, config::add_defaults_of_hugging_face};
}

}  // namespace

ImportedConfig import_config(const std::filesystem::path& file) {
  const YAML::Node root = in_family(ErrorCode::config_file, [&] { return read_mapping(file); });
  GivenKeys keys(root);
  config::ImportedSettings settings;
  const Origin origin = origin_of(root);
  origin.import(keys, settings);
  config::import_by_table(keys, settings);
  origin.add_defaults(keys, settings);
  return settings.finish(origin.name, concat("From ", file.filename().string(), " (", origin.name,
                                             "). `trainer config --config THIS_FILE` shows all keys."));
}

}  // namespace trainer
