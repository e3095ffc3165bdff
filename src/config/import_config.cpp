#include "config/import_config.h"

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/file_facts.h"
#include "config/import_settings.h"
#include "config/yaml_text.h"

namespace trainer {
namespace {

using config::GivenKeys;

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
  YAML::Node root;
  try {
    root = config::parse_yaml(text);
  } catch (const YAML::Exception& error) {
    throw ConfigError(concat(file.string(), ":", error.mark.line + 1, ":", error.mark.column + 1, ": ",
                             config::yaml_problem(error, text)));
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

struct Origin {
  const char* name;
  void (*import)(GivenKeys& keys, config::ImportedSettings& settings);
};

Origin origin_of(const YAML::Node& root) {
  if (is_torchtune(root)) return {"torchtune", config::import_torchtune};
  if (has_any(root, {"finetuning_type", "cutoff_len", "dataset_dir", "stage", "quantization_bit"}))
    return {"LLaMA-Factory", config::import_llama_factory};
  if (has_any(root, {"base_model", "micro_batch_size", "sequence_len", "datasets"}))
    return {"axolotl", config::import_axolotl};
  return {"Hugging Face TrainingArguments", [](GivenKeys& keys, config::ImportedSettings& settings) {
            import_batch(keys, settings, "per_device_train_batch_size", 8);
          }};
}

}  // namespace

ImportedConfig import_config(const std::filesystem::path& file) {
  const YAML::Node root = read_mapping(file);
  GivenKeys keys(root);
  config::ImportedSettings settings;
  const Origin origin = origin_of(root);
  origin.import(keys, settings);
  config::import_by_table(keys, settings);
  return settings.finish(origin.name, concat("From ", file.filename().string(), " (", origin.name,
                                             "). `trainer config --config THIS_FILE` shows all keys."));
}

}  // namespace trainer
