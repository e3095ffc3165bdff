// A Hugging Face model directory: config.json, one or several safetensors files, tokenizer files.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/formats/safetensors.h"

namespace trainer {

// Throws FormatError where there is no such directory, or a file in its place.
void require_model_directory(const std::filesystem::path& directory);

// config.json with the spellings of Transformers v5 turned into those of v4: `dtype` -> `torch_dtype`,
// `rope_parameters: {rope_theta, rope_type, ...}` -> `rope_theta`, `partial_rotary_factor` and `rope_scaling`
// (none for rope_type default), unless it has one for each type of layer; `rope_scaling.type` is also there
// as `rope_type`. Everything else stays as it is. Also of a file that is such a config.json under another
// name (NAME.json). Throws FormatError when it is missing or no JSON object, or has no model_type.
nlohmann::json read_model_config(const std::filesystem::path& directory);

// Writes FROM's config.json, as it was read, to TO; only the type of the weights is set anew, in the file's
// own spelling, and the keys of the object `changes`.
void write_model_config(const std::filesystem::path& from, const std::filesystem::path& to, Dtype dtype,
                        const nlohmann::ordered_json& changes = nlohmann::ordered_json::object());

// A key of config.json with a clear FormatError (file, key, expected type) when it is there with a wrong
// type, or absent without a default.
int64_t config_int(const nlohmann::json& config, const std::string& key);
int64_t config_int(const nlohmann::json& config, const std::string& key,
                   int64_t fallback);  // null counts as absent
// The same for sizes and counts: at least 1, and no more than a size can be (2^31).
int64_t config_size(const nlohmann::json& config, const std::string& key);
int64_t config_size(const nlohmann::json& config, const std::string& key, int64_t fallback);
double config_double(const nlohmann::json& config, const std::string& key, double fallback);
bool config_bool(const nlohmann::json& config, const std::string& key, bool fallback);
std::string config_string(const nlohmann::json& config, const std::string& key, const std::string& fallback);

// All weights of a model directory: model.safetensors, or the files of model.safetensors.index.json (each
// listed file must exist and hold what the index says; a tensor in two files is refused). A directory that
// only has .bin pickles is refused with the command that converts them.
struct ModelWeights {
  std::vector<SafetensorsFile> files;
  std::map<std::string, TensorView> tensors;   // of all files
  std::map<std::string, std::string> file_of;  // tensor -> file name
  // The mapping that holds a tensor's bytes.
  std::shared_ptr<const MappedFile> mapping_of(const std::string& name) const;
  int64_t total_bytes() const;
};
ModelWeights read_model_weights(const std::filesystem::path& directory);

// Writes model.safetensors, or, where that would be larger than `max_shard_bytes`,
// model-0000i-of-0000N.safetensors and then model.safetensors.index.json; weights of an earlier save with
// other names are removed. A reader sees the old weights, the new ones or, for a moment, none; never a
// mixture. Returns the names of the files written.
std::vector<std::string> write_model_weights(const std::filesystem::path& directory,
                                             const TensorSources& tensors,
                                             int64_t max_shard_bytes = 5'000'000'000);

// The tokenizer's files and the chat template, copied as they are. Returns their names.
std::vector<std::string> copy_tokenizer_files(const std::filesystem::path& from,
                                              const std::filesystem::path& to);
// Files beside the weights that belong to a complete directory (tokenizer files, generation_config.json, chat
// template): copied as they are. Returns their names.
std::vector<std::string> copy_companion_files(const std::filesystem::path& from,
                                              const std::filesystem::path& to);

}  // namespace trainer
