#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"

#include "base/text.h"
#include "formats/json_file.h"
#include "hub/fetch.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;  // patterns are tried in their order

constexpr const char* kConfigFile = "adapter_config.json";

// Keys of PEFT's LoraConfig that change what the adapter computes or where it is applied, and are not
// supported: they must be missing, null, false, empty or "none".
constexpr std::array kUnsupported{
    "alora_invocation_tokens", "arrow_config",    "fan_in_fan_out",    "kasa_config",
    "layer_replication",       "megatron_config", "monteclora_config", "target_parameters",
    "trainable_token_indices", "use_bdlora",      "use_qalora",        "velora_config"};

// Keys that are read below, or that do not affect what the trained adapter computes.
constexpr std::array kHarmless{"alpha_pattern",
                               "auto_mapping",
                               "base_model_name_or_path",
                               "bias",
                               "corda_config",
                               "ensure_weight_tying",
                               "eva_config",
                               "exclude_modules",
                               "inference_mode",
                               "init_lora_weights",
                               "layers_pattern",
                               "layers_to_transform",
                               "loftq_config",
                               "lora_alpha",
                               "lora_bias",
                               "lora_dropout",
                               "lora_ga_config",
                               "megatron_core",
                               "modules_to_save",
                               "peft_type",
                               "peft_version",
                               "qalora_group_size",
                               "r",
                               "rank_pattern",
                               "revision",
                               "runtime_config",
                               "target_modules",
                               "task_type",
                               "use_dora",
                               "use_rslora"};

template <size_t N>
bool is_in(const std::array<const char*, N>& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

bool is_off(const Json& value) {
  return value.is_null() || value == false || value == "none" || value == "" ||
         ((value.is_array() || value.is_object()) && value.empty());
}

// Returns whether the initialisation leaves the base weights unchanged. Others (pissa, olora, corda, loftq,
// ...) subtract the initial adapter from the base weights, so such an adapter does not fit the model on disk.
bool keeps_base_weights(const Json& init) {
  return init.is_null() || init.is_boolean() || init == "gaussian" || init == "eva" || init == "orthogonal";
}

void refuse_unsupported(const Json& config, const std::string& where) {
  if (config.value("peft_type", Json()) != "LORA") {
    throw FormatError(concat(where, ": peft_type: ", config.value("peft_type", Json()).dump(),
                             " is not supported; only \"LORA\" is"));
  }
  std::vector<std::string> problems, unknown;
  for (const auto& [key, value] : config.items()) {
    if (is_in(kUnsupported, key) && !is_off(value)) problems.push_back(concat(key, ": ", value.dump()));
    if (!is_in(kUnsupported, key) && !is_in(kHarmless, key) && !is_off(value)) unknown.push_back(key);
  }
  const Json init = config.value("init_lora_weights", Json());
  if (!keeps_base_weights(init)) {
    problems.push_back(concat("init_lora_weights: ", init.dump(),
                              " (it changes the base weights; save the adapter ",
                              "with PEFT's path_initial_model_for_weight_conversion)"));
  }
  if (!problems.empty()) {
    throw FormatError(
        concat(where, ": has settings that are not supported: ", join_some(problems, 10, "; ")));
  }
  if (!unknown.empty()) log::warning(concat(where, ": unknown keys are ignored: ", join_some(unknown)));
}

class KeyReader {
 public:
  KeyReader(const Json& config, std::string where) : config_(config), where_(std::move(where)) {}

  std::string text(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return "";
    if (!value->is_string()) fail(key, "a string");
    return value->get<std::string>();
  }

  double number(const char* key, double fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) fail(key, "a number");
    return value->get<double>();
  }

  bool flag(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) fail(key, "true or false");
    return value->get<bool>();
  }

  std::vector<std::string> names(const char* key) const {
    const Json* value = find(key);
    std::vector<std::string> names;
    if (value == nullptr) return names;
    if (!value->is_array()) fail(key, "a list of names");
    for (const Json& name : *value) {
      if (!name.is_string()) fail(key, "a list of names");
      names.push_back(name.get<std::string>());
    }
    return names;
  }

  bool is_text(const char* key) const { return find(key) != nullptr && find(key)->is_string(); }

  ModuleNames text_or_names(const char* key) const {
    if (is_text(key)) return text(key);
    return names(key);
  }

  // An index, or a list of indices.
  std::vector<int64_t> indices(const char* key) const {
    constexpr const char* expected = "the index of a layer or a list of them";
    const Json* value = find(key);
    std::vector<int64_t> indices;
    if (value == nullptr) return indices;
    for (const Json& index : value->is_array() ? *value : Json::array({*value})) {
      if (!index.is_number_integer()) fail(key, expected);
      indices.push_back(index.get<int64_t>());
    }
    return indices;
  }

  template <class Value, class Accepts>
  ModulePatterns<Value> patterns(const char* key, const char* expected, Accepts accepts) const {
    const Json* value = find(key);
    ModulePatterns<Value> patterns;
    if (value == nullptr) return patterns;
    if (!value->is_object()) fail(key, expected);
    for (const auto& [pattern, item] : value->items()) {
      if (!accepts(item)) fail(key, expected);
      patterns.emplace_back(pattern, item.template get<Value>());
    }
    return patterns;
  }

  bool has(const char* key) const { return find(key) != nullptr; }

  [[noreturn]] void fail(const char* key, const char* expected) const {
    throw FormatError(
        concat(where_, ": ", key, ": must be ", expected, ", is ", config_.value(key, Json()).dump()));
  }

 private:
  const Json* find(const char* key) const {
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }

  const Json& config_;
  std::string where_;
};

Json number_json(double value) {   // 16, not 16.0, as PEFT writes it
  constexpr double kExact = 1e15;  // JSON writers differ beyond that anyway
  const bool is_whole = std::abs(value) < kExact && std::trunc(value) == value;
  return is_whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

template <class List>
Json list_or_null(const List& list) {
  return list.empty() ? Json() : Json(list);
}

Json names_json(const ModuleNames& names) {
  if (const auto* text = std::get_if<std::string>(&names)) return text_or_null(*text);
  return list_or_null(std::get<std::vector<std::string>>(names));
}

Json patterns_json(const ModulePatterns<int64_t>& patterns) {
  Json object = Json::object();
  for (const auto& [pattern, value] : patterns) object[pattern] = value;
  return object;
}

Json patterns_json(const ModulePatterns<double>& patterns) {
  Json object = Json::object();
  for (const auto& [pattern, value] : patterns) object[pattern] = number_json(value);
  return object;
}

constexpr std::array kBiases{"none", "all", "lora_only"};  // in the order of AdapterBias

AdapterBias read_bias(const KeyReader& reader) {
  if (!reader.has("bias")) return AdapterBias::none;
  const std::string name = reader.text("bias");
  for (size_t i = 0; i < kBiases.size(); i++) {
    if (name == kBiases[i]) return static_cast<AdapterBias>(i);
  }
  reader.fail("bias", "none, all or lora_only");
}

// Combinations that PEFT's LoraConfig also refuses.
void check_combinations(const AdapterConfig& config, const std::string& where) {
  const bool by_layer = !config.layers_to_transform.empty();
  if (by_layer && std::holds_alternative<std::string>(config.target_modules)) {
    throw FormatError(concat(where, ": layers_to_transform needs a list of target_modules, not '",
                             std::get<std::string>(config.target_modules), "'"));
  }
  if (!by_layer && !config.layers_pattern.empty()) {
    throw FormatError(concat(where, ": layers_pattern needs layers_to_transform, which is missing"));
  }
  if (config.use_dora && config.lora_bias) {
    throw FormatError(concat(where, ": use_dora and lora_bias cannot be combined"));
  }
}

}  // namespace

bool is_adapter_directory(const fs::path& directory) { return fs::is_regular_file(directory / kConfigFile); }

namespace {

AdapterConfig parse_adapter_config(const fs::path& path) {
  const Json file = read_ordered_json_object(path);
  refuse_unsupported(file, path.string());
  const KeyReader reader(file, path.string());
  AdapterConfig config;
  config.base_model_name_or_path = reader.text("base_model_name_or_path");
  config.revision = reader.text("revision");
  config.task_type = reader.text("task_type");
  const double r = reader.number("r", 8);
  config.r = r >= 1 && r <= 1e9 ? static_cast<int64_t>(r) : 0;
  if (config.r < 1 || static_cast<double>(config.r) != r) reader.fail("r", "a whole number of at least 1");
  config.lora_alpha = reader.number("lora_alpha", 8);
  config.lora_dropout = reader.number("lora_dropout", 0);
  if (config.lora_dropout < 0 || config.lora_dropout >= 1)
    reader.fail("lora_dropout", "at least 0 and below 1");
  config.target_modules = reader.text_or_names("target_modules");
  config.exclude_modules = reader.text_or_names("exclude_modules");
  config.layers_to_transform = reader.indices("layers_to_transform");
  if (reader.is_text("layers_pattern")) {
    if (const std::string text = reader.text("layers_pattern"); !text.empty()) config.layers_pattern = {text};
  } else {
    config.layers_pattern = reader.names("layers_pattern");
  }
  config.rank_pattern =
      reader.patterns<int64_t>("rank_pattern", "an object of ranks, whole numbers of at least 1",
                               [](const Json& item) { return item.is_number_integer() && item >= 1; });
  config.alpha_pattern = reader.patterns<double>("alpha_pattern", "an object of numbers",
                                                 [](const Json& item) { return item.is_number(); });
  config.modules_to_save = reader.names("modules_to_save");
  config.bias = read_bias(reader);
  config.use_rslora = reader.flag("use_rslora");
  config.use_dora = reader.flag("use_dora");
  config.lora_bias = reader.flag("lora_bias");
  config.ensure_weight_tying = reader.flag("ensure_weight_tying");
  check_combinations(config, path.string());
  return config;
}

}  // namespace

AdapterConfig read_adapter_config(const fs::path& directory) {
  return in_family(ErrorCode::adapter, [&] { return parse_adapter_config(directory / kConfigFile); });
}

// The keys that PEFT 0.10 to 0.12 wrote. Every later release uses its defaults for missing keys, while
// releases before 0.14 fail on unknown keys. So newer keys are written only when they differ from the
// default.
void write_adapter_config(const fs::path& directory, const AdapterConfig& config) {
  std::map<std::string, Json> keys{{"alpha_pattern", patterns_json(config.alpha_pattern)},
                                   {"auto_mapping", nullptr},
                                   {"base_model_name_or_path", text_or_null(config.base_model_name_or_path)},
                                   {"bias", kBiases[static_cast<size_t>(config.bias)]},
                                   {"fan_in_fan_out", false},
                                   {"inference_mode", true},
                                   {"init_lora_weights", true},
                                   {"layer_replication", nullptr},
                                   {"layers_pattern", list_or_null(config.layers_pattern)},
                                   {"layers_to_transform", list_or_null(config.layers_to_transform)},
                                   {"loftq_config", Json::object()},
                                   {"lora_alpha", number_json(config.lora_alpha)},
                                   {"lora_dropout", config.lora_dropout},
                                   {"megatron_config", nullptr},
                                   {"megatron_core", "megatron.core"},
                                   {"modules_to_save", list_or_null(config.modules_to_save)},
                                   {"peft_type", "LORA"},
                                   {"r", config.r},
                                   {"rank_pattern", patterns_json(config.rank_pattern)},
                                   {"revision", text_or_null(config.revision)},
                                   {"target_modules", names_json(config.target_modules)},
                                   {"task_type", text_or_null(config.task_type)},
                                   {"use_dora", config.use_dora},
                                   {"use_rslora", config.use_rslora}};
  const Json exclude = names_json(config.exclude_modules);
  if (!exclude.is_null()) keys["exclude_modules"] = exclude;
  if (config.lora_bias) keys["lora_bias"] = true;
  if (config.ensure_weight_tying) keys["ensure_weight_tying"] = true;
  Json file = Json::object();
  for (auto& [key, value] : keys) file[key] = std::move(value);
  write_json(directory / kConfigFile, file);
}

std::filesystem::path base_directory(const std::filesystem::path& directory) {
  if (!is_adapter_directory(directory)) return directory;
  const AdapterConfig config = read_adapter_config(directory);
  const std::filesystem::path base = config.base_model_name_or_path;
  if (base.empty()) {
    throw of_family(ErrorCode::adapter,
                    FormatError(concat(
                        (directory / kConfigFile).string(), ": does not name the base model of this adapter ",
                        "(base_model_name_or_path); write its path there, or give it with --base "
                        "DIR (generate, chat, eval, merge, export)")));
  }
  const bool may_be_path = config.base_model_name_or_path.find('\0') == std::string::npos;
  std::error_code ignored;
  if (may_be_path && std::filesystem::exists(base, ignored)) return base;
  if (may_be_path && std::filesystem::exists(directory / base, ignored)) return directory / base;
  if (auto name = hub::find_name(hub::Kind::model, base.string())) {
    if (!config.revision.empty() && !hub::is_revision(config.revision)) {
      throw of_family(ErrorCode::adapter,
                      FormatError(concat((directory / kConfigFile).string(), ": revision '",
                                         one_line(config.revision, 80), "' is no branch, tag or commit")));
    }
    if (!config.revision.empty()) name->revision = config.revision;
    return hub::fetch_model(*name, hub::ModelParts::all);
  }
  throw of_family(ErrorCode::adapter,
                  FormatError(concat((directory / "adapter_config.json").string(),
                                     ": base_model_name_or_path '", one_line(base.string(), 200),
                                     "' is not a directory here; set it to the path of the base model, or ",
                                     "give that with --base DIR (generate, chat, eval, merge, export)")));
}

std::filesystem::path base_directory(const std::filesystem::path& directory,
                                     const std::filesystem::path& base) {
  if (base.empty()) return base_directory(directory);
  if (!is_adapter_directory(directory))
    throw ConfigError(concat(directory.string(), ": is a model, not an adapter; leave out --base"));
  require_model_directory(base);
  return base;
}

}  // namespace trainer
