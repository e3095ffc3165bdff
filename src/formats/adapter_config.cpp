#include <algorithm>
#include <array>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/peft.h"

#include "formats/json_file.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr const char* kConfigFile = "adapter_config.json";

// Keys of PEFT's LoraConfig that change what the adapter computes or what it is put on. Only absent, null,
// false, empty or "none" is the plain LoRA of this program.
constexpr std::array kUnsupported{"alora_invocation_tokens",
                                  "alpha_pattern",
                                  "arrow_config",
                                  "bias",
                                  "ensure_weight_tying",
                                  "exclude_modules",
                                  "fan_in_fan_out",
                                  "kasa_config",
                                  "layer_replication",
                                  "layers_pattern",
                                  "layers_to_transform",
                                  "lora_bias",
                                  "megatron_config",
                                  "monteclora_config",
                                  "rank_pattern",
                                  "target_parameters",
                                  "trainable_token_indices",
                                  "use_bdlora",
                                  "use_dora",
                                  "use_qalora",
                                  "velora_config"};

// Keys that are read below, or that say nothing about the trained adapter's mathematics.
constexpr std::array kHarmless{"auto_mapping",      "base_model_name_or_path",
                               "corda_config",      "eva_config",
                               "inference_mode",    "init_lora_weights",
                               "loftq_config",      "lora_alpha",
                               "lora_dropout",      "lora_ga_config",
                               "megatron_core",     "modules_to_save",
                               "peft_type",         "peft_version",
                               "qalora_group_size", "r",
                               "revision",          "runtime_config",
                               "target_modules",    "task_type",
                               "use_rslora"};

template <size_t N>
bool is_in(const std::array<const char*, N>& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

bool is_off(const json& value) {
  return value.is_null() || value == false || value == "none" || value == "" ||
         ((value.is_array() || value.is_object()) && value.empty());
}

// Initialisations that leave the base weights alone. The others (pissa, olora, corda, loftq, ...) subtract
// the start of the adapter from them, so that the adapter does not fit the model as it lies on the disk.
bool keeps_base_weights(const json& init) {
  return init.is_null() || init.is_boolean() || init == "gaussian" || init == "eva" || init == "orthogonal";
}

void refuse_unsupported(const json& config, const std::string& where) {
  if (config.value("peft_type", json()) != "LORA") {
    throw FormatError(concat(where, ": peft_type: ", config.value("peft_type", json()).dump(),
                             " is not supported; only \"LORA\" is"));
  }
  std::vector<std::string> problems, unknown;
  for (const auto& [key, value] : config.items()) {
    if (is_in(kUnsupported, key) && !is_off(value)) problems.push_back(concat(key, ": ", value.dump()));
    if (!is_in(kUnsupported, key) && !is_in(kHarmless, key) && !is_off(value)) unknown.push_back(key);
  }
  const json init = config.value("init_lora_weights", json());
  if (!keeps_base_weights(init)) {
    problems.push_back(concat("init_lora_weights: ", init.dump(),
                              " (it changes the base weights; save the adapter ",
                              "with PEFT's path_initial_model_for_weight_conversion)"));
  }
  if (!problems.empty()) {
    throw FormatError(concat(where, ": asks for what is not supported: ", join(problems, "; ")));
  }
  if (!unknown.empty()) log::warning(concat(where, ": ignored, because they are not known: ", join(unknown)));
}

class Reader {
 public:
  Reader(const json& config, std::string where) : config_(config), where_(std::move(where)) {}

  std::string text(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return "";
    if (!value->is_string()) fail(key, "a string");
    return value->get<std::string>();
  }

  double number(const char* key, double fallback) const {
    const json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) fail(key, "a number");
    return value->get<double>();
  }

  bool flag(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) fail(key, "true or false");
    return value->get<bool>();
  }

  std::vector<std::string> names(const char* key) const {
    const json* value = find(key);
    std::vector<std::string> names;
    if (value == nullptr) return names;
    if (!value->is_array()) fail(key, "a list of names");
    for (const json& name : *value) {
      if (!name.is_string()) fail(key, "a list of names");
      names.push_back(name.get<std::string>());
    }
    return names;
  }

  bool is_text(const char* key) const { return find(key) != nullptr && find(key)->is_string(); }

  [[noreturn]] void fail(const char* key, const char* expected) const {
    throw FormatError(
        concat(where_, ": ", key, ": must be ", expected, ", is ", config_.value(key, json()).dump()));
  }

 private:
  const json* find(const char* key) const {
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }

  const json& config_;
  std::string where_;
};

json number_json(double value) {  // 16, not 16.0, as PEFT writes it
  const auto whole = static_cast<int64_t>(value);
  return static_cast<double>(whole) == value ? json(whole) : json(value);
}

json text_or_null(const std::string& text) { return text.empty() ? json() : json(text); }

}  // namespace

bool is_adapter_directory(const fs::path& directory) { return fs::is_regular_file(directory / kConfigFile); }

AdapterConfig read_adapter_config(const fs::path& directory) {
  const fs::path path = directory / kConfigFile;
  const json file = read_json_object(path);
  refuse_unsupported(file, path.string());
  const Reader reader(file, path.string());
  AdapterConfig config;
  config.base_model_name_or_path = reader.text("base_model_name_or_path");
  config.task_type = reader.text("task_type");
  const double r = reader.number("r", 8);
  config.r = r >= 1 && r <= 1e9 ? static_cast<int64_t>(r) : 0;
  if (config.r < 1 || static_cast<double>(config.r) != r) reader.fail("r", "a whole number of at least 1");
  config.lora_alpha = reader.number("lora_alpha", 8);
  config.lora_dropout = reader.number("lora_dropout", 0);
  if (config.lora_dropout < 0 || config.lora_dropout >= 1)
    reader.fail("lora_dropout", "at least 0 and below 1");
  if (reader.is_text("target_modules")) {
    config.target_modules = reader.text("target_modules");
  } else {
    config.target_modules = reader.names("target_modules");
  }
  config.modules_to_save = reader.names("modules_to_save");
  config.use_rslora = reader.flag("use_rslora");
  return config;
}

// The keys that PEFT 0.10 to 0.12 wrote: every later release takes its defaults for the rest, while releases
// before 0.14 stop at a key that they do not know.
void write_adapter_config(const fs::path& directory, const AdapterConfig& config) {
  json file = {{"alpha_pattern", json::object()},
               {"auto_mapping", nullptr},
               {"base_model_name_or_path", text_or_null(config.base_model_name_or_path)},
               {"bias", "none"},
               {"fan_in_fan_out", false},
               {"inference_mode", true},
               {"init_lora_weights", true},
               {"layer_replication", nullptr},
               {"layers_pattern", nullptr},
               {"layers_to_transform", nullptr},
               {"loftq_config", json::object()},
               {"lora_alpha", number_json(config.lora_alpha)},
               {"lora_dropout", config.lora_dropout},
               {"megatron_config", nullptr},
               {"megatron_core", "megatron.core"},
               {"modules_to_save", config.modules_to_save.empty() ? json() : json(config.modules_to_save)},
               {"peft_type", "LORA"},
               {"r", config.r},
               {"rank_pattern", json::object()},
               {"revision", nullptr},
               {"task_type", text_or_null(config.task_type)},
               {"use_dora", false},
               {"use_rslora", config.use_rslora}};
  if (const auto* pattern = std::get_if<std::string>(&config.target_modules)) {
    file["target_modules"] = *pattern;
  } else {
    const auto& names = std::get<std::vector<std::string>>(config.target_modules);
    file["target_modules"] = names.empty() ? json() : json(names);
  }
  write_json(directory / kConfigFile, file);
}

std::filesystem::path base_directory(const std::filesystem::path& directory) {
  if (!is_adapter_directory(directory)) return directory;
  const std::filesystem::path base = read_adapter_config(directory).base_model_name_or_path;
  if (std::filesystem::exists(base)) return base;
  if (std::filesystem::exists(directory / base)) return directory / base;
  throw FormatError(concat((directory / "adapter_config.json").string(), ": base_model_name_or_path '",
                           base.string(), "' is no directory here; edit it to where the base model is"));
}

}  // namespace trainer
