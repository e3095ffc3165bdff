// A Hugging Face model directory: config.json, one or several safetensors files, tokenizer files.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/formats/safetensors.h"

namespace trainer {

// Throws FormatError when the directory does not exist, or is a file.
void require_model_directory(const std::filesystem::path& directory);

// Returns config.json, with the keys of Transformers v5 renamed to those of v4: `dtype` -> `torch_dtype`, and
// `rope_parameters: {rope_theta, rope_type, ...}` -> `rope_theta`, `partial_rotary_factor` and `rope_scaling`
// (none for rope_type default). `rope_parameters` stays when it has one entry for each type of layer.
// `rope_scaling.type` is copied to `rope_type`. Of a model of texts and images it returns the settings of the
// text half, with the key whole_model_type. Everything else stays as it is. `directory` may also be a file
// NAME.json with the content of a config.json. Throws FormatError when the file is missing, is not a
// JSON object or has no model_type.
nlohmann::json read_model_config(const std::filesystem::path& directory);

// Copies FROM's config.json to TO. Only the dtype of the weights changes, under the key that the file uses
// (`dtype` or `torch_dtype`), and the keys of the object `changes`; null removes a key. Of a model of texts
// and images the settings of the text half change.
void write_model_config(const std::filesystem::path& from, const std::filesystem::path& to, Dtype dtype,
                        const nlohmann::ordered_json& changes = nlohmann::ordered_json::object());

// These return the value of a key of config.json. They throw a FormatError that names file, key and expected
// type when the value has the wrong type, or when the key is missing and there is no fallback.
int64_t config_int(const nlohmann::json& config, const std::string& key);
int64_t config_int(const nlohmann::json& config, const std::string& key,
                   int64_t fallback);  // null counts as absent
// The same for sizes and counts, which must be at least 1 and at most 2^31.
int64_t config_size(const nlohmann::json& config, const std::string& key);
int64_t config_size(const nlohmann::json& config, const std::string& key, int64_t fallback);
double config_double(const nlohmann::json& config, const std::string& key, double fallback);
bool config_bool(const nlohmann::json& config, const std::string& key, bool fallback);
std::string config_string(const nlohmann::json& config, const std::string& key, const std::string& fallback);

// All weights of a model directory: model.safetensors, or the files of model.safetensors.index.json. Each
// file that the index lists must exist and hold the listed tensors; a tensor in two files is an error. For a
// directory that has only .bin pickles, the error message gives the command that converts them.
// Of a model of texts and images only the text half is loaded; its tensors get the names of Transformers'
// modules, whatever prefixes the files have. (T5Gemma's head, lm_head.out_proj there, is lm_head here.)
struct StoredNames {
  std::string body, head;                                 // prefixes in the files, with a point at their ends
  std::string body_of_modules = "model.language_model.";  // the body's in Transformers
  std::string other_body = {};                  // a further one, which has the same name in both; empty: none
  std::vector<std::string> of_other_half = {};  // begins of names in the body that are not its own

  std::string of(const std::string& module) const;
  // Returns nothing for tensors of the other half.
  std::optional<std::string> module_of(const std::string& stored) const;
};
struct ModelWeights {
  std::vector<SafetensorsFile> files;
  std::map<std::string, TensorView> tensors;   // tensors of all files
  std::map<std::string, std::string> file_of;  // tensor -> file name
  std::optional<StoredNames> names;            // of a model of texts and images
  std::map<std::string, TensorView> others;    // the tensors of its other half, by their names in the files
  // The mapped file that holds the bytes of the tensor `name`.
  std::shared_ptr<const MappedFile> mapping_of(const std::string& name) const;
  int64_t total_bytes() const;
};
// Throws FormatError.
ModelWeights read_model_weights(const std::filesystem::path& directory);

// Writes model.safetensors. If that would be larger than `max_shard_bytes`, writes shards
// model-0000i-of-0000N.safetensors and then model.safetensors.index.json. Removes weight files of an earlier
// save that have other names. A reader sees the old weights, the new ones or, for a moment, none; never a
// mixture. Returns the names of the files written.
std::vector<std::string> write_model_weights(const std::filesystem::path& directory,
                                             const TensorSources& tensors,
                                             int64_t max_shard_bytes = 5'000'000'000);

// Writes tensors into the room that write_model_weights() has left for them, as fill_safetensors() does. Of a
// model of texts and images these have the names of read_model_weights().
void fill_model_weights(const std::filesystem::path& directory, const TensorSources& tensors);

// Copies the tokenizer's files and the chat template unchanged. Returns their names.
std::vector<std::string> copy_tokenizer_files(const std::filesystem::path& from,
                                              const std::filesystem::path& to);
// Copies all files that a complete directory has besides config.json and the weights (tokenizer files,
// generation_config.json, chat template), unchanged. Returns their names.
std::vector<std::string> copy_companion_files(const std::filesystem::path& from,
                                              const std::filesystem::path& to);
// Copies all files that a model of texts and images has besides config.json and the weights, unchanged: those
// of its processors, its licence. Does nothing for other models.
void copy_files_of_other_half(const std::filesystem::path& from, const std::filesystem::path& to);
// Removes files of this kind that are not among `written`: those of an earlier save.
void remove_other_companions(const std::filesystem::path& directory, const std::vector<std::string>& written);

// Removes the files of chat templates, for those of another directory that take their place.
void remove_chat_templates(const std::filesystem::path& directory);
// Makes `text` the only chat template of a directory: chat_template.jinja, and chat_template of
// tokenizer_config.json where that exists. Returns the names of the files that it has written.
std::vector<std::string> replace_chat_template(const std::filesystem::path& directory,
                                               const std::string& text);

}  // namespace trainer
