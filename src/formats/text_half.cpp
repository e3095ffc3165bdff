#include "formats/text_half.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/file_facts.h"
#include "formats/json_file.h"
#include "formats/trainer_state.h"
#include "formats/two_stacks.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_set_in(const json& object, const char* key) { return object.contains(key) && !object[key].is_null(); }

// Keys that a whole model has for both of its halves.
constexpr std::array kOfBoth{
    "architectures", "dtype", "torch_dtype", "eos_token_id", "quantization_config", "transformers_version"};

// Keys of a flat file that belong to the images.
bool is_of_images(const std::string& key) {
  return key.starts_with("image_") || key.starts_with("video_") || key.starts_with("vision_");
}

json flat_text_half(const json& config) {
  json text = config;
  for (const auto& [key, value] : config.items())
    if (is_of_images(key)) text.erase(key);
  text.erase("model_type");
  return text;
}

// Positions of images have three coordinates; those of texts are the same in all of them, so that this is the
// ordinary rotary embedding.
void simplify_rope(json& text) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!text.contains(key) || !text[key].is_object()) continue;
    json& rope = text[key];
    for (const char* name : {"type", "rope_type"})
      if (rope.value(name, json()) == "mrope") rope[name] = "default";
    rope.erase("mrope_section");
    rope.erase("mrope_interleaved");
  }
}

bool ties(const json& config, const json& text, const WholeModel& whole, const std::string& where) {
  for (const json* object : {&config, &text}) {
    if (!is_set_in(*object, "tie_word_embeddings")) continue;
    const json& value = (*object)["tie_word_embeddings"];
    if (!value.is_boolean())
      throw FormatError(
          concat(where, ": tie_word_embeddings: must be true or false, is ", value.dump().substr(0, 100)));
    return value.get<bool>();
  }
  return whole.ties_by_default;
}

constexpr std::string_view kHead = "lm_head.";

bool has_prefix(const ModelWeights& weights, const std::string& prefix) {
  const auto found = weights.tensors.lower_bound(prefix);
  return found != weights.tensors.end() && found->first.starts_with(prefix);
}

// T5Gemma, and T5Gemma 2, whose files name the encoder's text model or not; only its embedding has a vector
// for the end of an image.
StoredNames names_of_two_stacks(const ModelWeights& weights) {
  const std::string encoder = "model.encoder.", text = concat(encoder, "text_model."),
                    eoi = concat(encoder, "embed_tokens.eoi_embedding"), head = "lm_head.out_proj.";
  const bool nested = has_prefix(weights, text);
  const bool is_short = weights.tensors.contains(concat(kHead, "weight"));
  StoredNames names{nested ? text : encoder, is_short ? std::string(kHead) : head};
  names.body_of_modules = nested || weights.tensors.contains(eoi) ? text : encoder;
  names.other_body = "model.decoder.";
  if (!nested)
    names.of_other_half = {concat(encoder, "vision_tower."), concat(encoder, "multi_modal_projector.")};
  return names;
}

// The names of the text half in the files: those of Transformers 5, of Transformers 4, of a body that was
// saved without its head, and of files without a prefix.
StoredNames stored_names_of(const ModelWeights& weights) {
  if (has_prefix(weights, "model.decoder.")) return names_of_two_stacks(weights);
  for (const char* body : {"model.language_model.", "language_model.model.", "language_model.", "model."}) {
    if (!has_prefix(weights, concat(body, "layers."))) continue;
    const std::string in_half = "language_model.lm_head.";
    return {body, has_prefix(weights, in_half) ? in_half : std::string(kHead)};
  }
  return {concat(kTextHalf, "."), std::string(kHead)};
}

constexpr std::array kWeightEndings{".safetensors", ".bin", ".pt",      ".pth",        ".gguf",
                                    ".onnx",        ".h5",  ".msgpack", ".index.json", ".jsonl"};
constexpr std::array kNotCopied{"config.json", "adapter_config.json", "config.yaml",
                                "log.txt",     "environment.json",    "data_report.json",
                                "report.html", "status.json",         kTrainerStateFile};

// What Transformers takes for both kinds of Gemma 4.
json gemma4_sizes() {
  return {{"vocab_size", 262144},
          {"hidden_size", 2304},
          {"intermediate_size", 9216},
          {"num_hidden_layers", 30},
          {"num_attention_heads", 8}};
}

}  // namespace

const std::vector<WholeModel>& whole_models() {
  static const std::vector<WholeModel> all{
      {"gemma3",
       {"gemma3_text"},
       true,
       false,
       {{"vocab_size", 262208},
        {"hidden_size", 2304},
        {"intermediate_size", 9216},
        {"num_hidden_layers", 26},
        {"num_attention_heads", 8},
        {"num_key_value_heads", 4},
        {"head_dim", 256},
        {"max_position_embeddings", 131072}}},
      {"gemma4", {"gemma4_text"}, true, false, gemma4_sizes()},
      {"gemma4_unified", {"gemma4_unified_text"}, true, false, gemma4_sizes()},
      {"mistral3", {"mistral", "ministral3"}, true, false, {}},
      {"qwen2_vl", {"qwen2_vl_text"}, false, true, {}},
      {"qwen2_5_vl", {"qwen2_5_vl_text"}, false, true, {}},
      {"qwen3_vl", {"qwen3_vl_text"}, false, false, {}},
      {"qwen3_5", {"qwen3_5_text"}, false, false, {}},
      {"t5gemma2", {"t5gemma2"}, true, false, {}},
  };
  return all;
}

const WholeModel* whole_model_of(const json& config) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return nullptr;
  const auto found = std::ranges::find(whole_models(), type->get<std::string>(), &WholeModel::model_type);
  return found == whole_models().end() ? nullptr : &*found;
}

static bool is_so(const fs::path& directory, bool (*check)(const json& config)) {
  const fs::path file = directory / "config.json";
  if (!has_entry(file)) return false;
  try {
    return check(read_json_object(file));
  } catch (const FormatError&) {
    return false;
  }
}

bool is_whole_model(const fs::path& directory) {
  return is_so(directory, [](const json& config) { return whole_model_of(config) != nullptr; });
}

bool has_stored_names(const fs::path& directory) {
  return is_so(directory, [](const json& config) {
    return whole_model_of(config) != nullptr || has_two_stacks(config);
  });
}

json text_half_of(const json& config, const WholeModel& whole, const std::string& where) {
  if (has_two_stacks(config)) {
    json stacks = with_whole_stacks(config, where);
    stacks[kWholeModelType] = whole.model_type;
    return stacks;
  }
  json text;
  if (is_set_in(config, "text_config")) {
    text = config["text_config"];
  } else if (whole.may_be_flat) {
    text = flat_text_half(config);
  }
  if (!text.is_object()) {
    throw FormatError(concat(where,
                             ": text_config: must be an object with the settings of the text model, is ",
                             text.is_null() ? "missing" : text.dump().substr(0, 100)));
  }
  const std::string type = is_set_in(text, "model_type") && text["model_type"].is_string()
                               ? text["model_type"].get<std::string>()
                               : whole.text_types.front();
  if (std::ranges::find(whole.text_types, type) == whole.text_types.end()) {
    throw of_family(ErrorCode::model_type,
                    FormatError(concat(where, ": text_config: model_type '", type, "' in a model of type '",
                                       whole.model_type,
                                       "' is not supported (supported: ", join(whole.text_types), ")")));
  }
  text["tie_word_embeddings"] = ties(config, text, whole, where);
  for (const char* key : kOfBoth)
    if (is_set_in(config, key)) text[key] = config[key];
  json filled = whole.text_defaults.is_null() ? json::object() : whole.text_defaults;
  filled.update(text);
  simplify_rope(filled);
  filled["model_type"] = type;
  filled[kWholeModelType] = whole.model_type;
  return filled;
}

void change_config(nlohmann::ordered_json& config, const nlohmann::ordered_json& changes) {
  const auto set = [](nlohmann::ordered_json& object, const std::string& key, const auto& value) {
    if (value.is_null()) {
      object.erase(key);
    } else {
      object[key] = value;
    }
  };
  nlohmann::ordered_json* text =
      config.contains("text_config") && config["text_config"].is_object() ? &config["text_config"] : nullptr;
  for (const auto& [key, value] : changes.items()) {
    const bool is_of_both = key == "tie_word_embeddings" || std::ranges::find(kOfBoth, key) != kOfBoth.end();
    if (key == "vocab_size" && has_two_stacks(config)) set_in_stacks(config, key, value);
    if (text == nullptr || is_of_both) set(config, key, value);
    if (text != nullptr && (!is_of_both || text->contains(key))) set(*text, key, value);
  }
}

std::string StoredNames::of(const std::string& module) const {
  if (module.starts_with(body_of_modules)) return body + module.substr(body_of_modules.size());
  if (module.starts_with(kHead)) return head + module.substr(kHead.size());
  return module;
}

std::optional<std::string> StoredNames::module_of(const std::string& stored) const {
  // The body's prefix may be the beginning of the head's.
  if (stored.starts_with(head)) return std::string(kHead) + stored.substr(head.size());
  const auto is_begin = [&](const std::string& prefix) { return stored.starts_with(prefix); };
  if (std::ranges::any_of(of_other_half, is_begin)) return std::nullopt;
  if (stored.starts_with(body)) return body_of_modules + stored.substr(body.size());
  if (!other_body.empty() && stored.starts_with(other_body)) return stored;
  return std::nullopt;
}

void separate_text_half(ModelWeights& weights) {
  weights.names = stored_names_of(weights);
  std::map<std::string, TensorView> tensors;
  std::map<std::string, std::string> file_of;
  for (auto& [stored, view] : weights.tensors) {
    const std::optional<std::string> module = weights.names->module_of(stored);
    (module ? tensors[*module] : weights.others[stored]) = std::move(view);
    file_of[module.value_or(stored)] = weights.file_of.at(stored);
  }
  weights.tensors = std::move(tensors);
  weights.file_of = std::move(file_of);
}

TensorSources as_stored(const ModelWeights& base, const TensorSources& text_half) {
  if (!base.names) return text_half;
  TensorSources renamed;
  for (const auto& [name, source] : text_half) renamed[base.names->of(name)] = source;
  return renamed;
}

TensorSources whole_again(const ModelWeights& base, const TensorSources& text_half) {
  TensorSources all = as_stored(base, text_half);
  all.merge(sources_of(base.others));
  return all;
}

std::vector<std::string> modules_of_other_half(const ModelWeights& weights) {
  std::set<std::string> modules;
  for (const auto& [name, view] : weights.others) {
    const std::string in_model = name.starts_with("model.") ? name.substr(6) : name;
    const std::string_view of_stack = in_model.starts_with("encoder.") ? "encoder." : "";
    modules.insert(concat("model.", in_model.substr(0, in_model.find('.', of_stack.size()))));
  }
  return {modules.begin(), modules.end()};
}

std::vector<std::string> other_files(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const auto ends = [&](const char* ending) { return name.ends_with(ending); };
    if (!entry.is_regular_file() || name.starts_with(".") || std::ranges::any_of(kWeightEndings, ends))
      continue;
    const bool is_of_run = name.starts_with("trainer_") ||  // those of a checkpoint
                           std::ranges::find(kNotCopied, name) != kNotCopied.end();
    if (!is_of_run) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace trainer
