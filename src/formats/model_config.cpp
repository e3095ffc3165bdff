#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"
#include "trainer/formats/safetensors.h"

#include "base/file_facts.h"
#include "formats/json_file.h"
#include "formats/model_limits.h"
#include "formats/text_half.h"
#include "formats/two_stacks.h"

namespace trainer {
namespace {

// No model has a larger size; larger values come from a damaged or made-up file.
constexpr int64_t kMostOfAnything = int64_t{1} << 31;
constexpr std::array<std::pair<std::string_view, int64_t>, 16> kMost{
    {{"vocab_size", 1 << 24},
     {"hidden_size", 1 << 20},
     {"intermediate_size", 1 << 22},
     {"num_hidden_layers", 1 << 8},
     {"num_attention_heads", 1 << 14},
     {"num_key_value_heads", 1 << 14},
     {"head_dim", 1 << 14},
     {"global_head_dim", 1 << 14},
     {"num_global_key_value_heads", 1 << 14},
     {"d_model", 1 << 20},
     {"d_kv", 1 << 14},
     {"d_ff", 1 << 22},
     {"num_heads", 1 << 14},
     {"num_layers", 1 << 7},
     {"num_decoder_layers", 1 << 7},
     {"relative_attention_num_buckets", 1 << 16}}};
constexpr double kMostParameters = 1e13;

}  // namespace

int64_t largest_size(const std::string& key) {
  const auto found = std::ranges::find(kMost, key, [](const auto& entry) { return entry.first; });
  return found == kMost.end() ? kMostOfAnything : found->second;
}

void check_token_ids(const nlohmann::json& config, int64_t vocab_size) {
  for (const char* key : {"pad_token_id", "decoder_start_token_id", "eos_token_id"}) {
    if (!config.contains(key) || config[key].is_null()) continue;
    const nlohmann::json& value = config[key];
    for (const nlohmann::json& item : value.is_array() ? value : nlohmann::json::array({value})) {
      const int64_t id = config_int(nlohmann::json::object({{key, item}}), key);
      if (id < vocab_size) continue;  // -1: none
      throw FormatError(
          concat("config.json: ", key, ": ", id, " is outside the vocabulary (vocab_size ", vocab_size, ")"));
    }
  }
}

void check_total_size(double parameters) {
  if (parameters <= kMostParameters) return;
  throw FormatError(concat("config.json: its sizes together give ", parameters,
                           " parameters, more than any model has; is the file damaged?"));
}

bool is_floating(Dtype dtype) {
  return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

namespace fs = std::filesystem;
namespace {

using nlohmann::json;

fs::path config_file(const fs::path& directory) {
  if (directory.extension() == ".json" && fs::is_regular_file(directory)) return directory;
  require_model_directory(directory);
  const fs::path path = directory / "config.json";
  if (!has_entry(path)) {
    throw FormatError(
        concat(path.string(), ": is missing; ",
               is_adapter_directory(directory)
                   ? "this directory holds an adapter; give the model that it was trained on"
                   : "a model is a Hugging Face directory with config.json and model.safetensors"));
  }
  return path;
}

bool is_set(const json& object, const char* key) { return object.contains(key) && !object[key].is_null(); }

// Returns whether there is one entry for each type of layer, as in models with several types.
bool is_by_layer_type(const json& rope) {
  return rope.is_object() && std::ranges::any_of(rope, [](const json& value) { return value.is_object(); });
}

// rope_parameters (v5) -> rope_theta, partial_rotary_factor, rope_scaling (v4).
void flatten_rope_parameters(json& config, const std::string& where) {
  json rope = config["rope_parameters"];
  if (is_by_layer_type(rope)) return;
  config.erase("rope_parameters");
  if (rope.is_null()) return;
  if (!rope.is_object())
    throw FormatError(concat(where, ": rope_parameters: must be an object, is ", rope.dump()));
  if (is_set(config, "rope_scaling")) {
    throw FormatError(concat(where, ": has both rope_parameters and rope_scaling; remove the wrong one"));
  }
  for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
    if (is_set(rope, key)) config[key] = rope[key];
    rope.erase(key);
  }
  const json type = rope.value("rope_type", rope.value("type", json("default")));
  config.erase("rope_scaling");
  if (type != "default" || rope.contains("llama_4_scaling_beta")) config["rope_scaling"] = rope;
}

void settle_rope(json& config, const std::string& where) {
  if (config.contains("rope_parameters")) flatten_rope_parameters(config, where);
  if (!is_set(config, "rope_scaling")) return;
  json& scaling = config["rope_scaling"];
  if (!scaling.is_object())
    throw FormatError(concat(where, ": rope_scaling: must be an object, is ", scaling.dump()));
  if (!is_set(scaling, "rope_type") && is_set(scaling, "type")) scaling["rope_type"] = scaling["type"];
}

// Returns the value of a key; nullptr when it is missing or null.
const json* find_value(const json& config, const std::string& key) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? nullptr : &*found;
}

[[noreturn]] void wrong_type(const std::string& key, const char* expected, const json& value) {
  throw FormatError(
      concat("config.json: ", key, ": must be ", expected, ", is ", one_line(value.dump(), 100)));
}

int64_t as_int(const std::string& key, const json& value) {
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() ||
                                                  value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits) wrong_type(key, "a whole number", value);
  return value.get<int64_t>();
}

}  // namespace

void require_model_directory(const fs::path& directory) {
  if (fs::is_directory(directory)) return;
  throw of_family(
      ErrorCode::model_files,
      FormatError(concat(
          directory.string(),
          fs::exists(directory) ? ": is a file, not a directory" : ": there is no such directory",
          "; give a Hugging Face directory with config.json, model.safetensors and tokenizer files, or a "
          "name of the Hugging Face Hub (OWNER/NAME)")));
}

json read_model_config(const fs::path& directory) {
  return in_family(ErrorCode::model_files, [&]() -> json {
    const fs::path path = config_file(directory);
    const std::string where = path.string();
    json config = read_json_object(path);
    if (const WholeModel* whole = whole_model_of(config)) {
      config = text_half_of(config, *whole, where);
    } else if (has_two_stacks(config)) {
      config = with_whole_stacks(config, where);
    }
    if (has_two_stacks(config)) {
      settle_rope(config["encoder"], where);
      settle_rope(config["decoder"], where);
    }
    settle_rope(config, where);
    if (is_set(config, "dtype")) config["torch_dtype"] = config["dtype"];
    config.erase("dtype");
    if (!is_set(config, "model_type") || !config["model_type"].is_string()) {
      throw FormatError(concat(where, ": model_type is missing; is this a language model's directory?"));
    }
    return config;
  });
}

void write_model_config(const fs::path& from, const fs::path& to, Dtype dtype,
                        const nlohmann::ordered_json& changes) {
  nlohmann::ordered_json config = read_ordered_json_object(config_file(from));
  const bool has_dtype = config.contains("dtype");
  if (has_dtype) config["dtype"] = torch_dtype_name(dtype);
  if (!has_dtype || config.contains("torch_dtype")) config["torch_dtype"] = torch_dtype_name(dtype);
  change_config(config, changes);
  write_json(to / "config.json", config);
}

int64_t config_int(const json& config, const std::string& key) {
  const json* value = find_value(config, key);
  if (value == nullptr) throw FormatError(concat("config.json: ", key, ": is missing (a whole number)"));
  return as_int(key, *value);
}

int64_t config_int(const json& config, const std::string& key, int64_t fallback) {
  const json* value = find_value(config, key);
  return value == nullptr ? fallback : as_int(key, *value);
}

int64_t config_size(const json& config, const std::string& key) {
  const int64_t size = config_int(config, key);
  if (const int64_t most = largest_size(key); size < 1 || size > most) {
    throw FormatError(concat("config.json: ", key, ": must be at least 1 and at most ", grouped(most),
                             ", is ", size, "; is the file damaged?"));
  }
  return size;
}

int64_t config_size(const json& config, const std::string& key, int64_t fallback) {
  return find_value(config, key) == nullptr ? fallback : config_size(config, key);
}

double config_double(const json& config, const std::string& key, double fallback) {
  const json* value = find_value(config, key);
  if (value == nullptr) return fallback;
  if (!value->is_number()) wrong_type(key, "a number", *value);
  return value->get<double>();
}

bool config_bool(const json& config, const std::string& key, bool fallback) {
  const json* value = find_value(config, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) wrong_type(key, "true or false", *value);
  return value->get<bool>();
}

std::string config_string(const json& config, const std::string& key, const std::string& fallback) {
  const json* value = find_value(config, key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) wrong_type(key, "a string", *value);
  return value->get<std::string>();
}

}  // namespace trainer
