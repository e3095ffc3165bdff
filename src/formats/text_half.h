// The text half of a model of texts and images. Its settings are nested in config.json, its tensors have a
// prefix, and the tensors of the other half (vision tower, projector, heads of further tokens) are not
// loaded; results contain them again, as they are.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/formats/model_directory.h"
#include "trainer/formats/safetensors.h"

namespace trainer {

// The key of read_model_config()'s result that holds the model_type of the whole: "gemma3". model_type is
// then the text half's: "gemma3_text".
inline constexpr const char* kWholeModelType = "whole_model_type";

// The name of the text half's module in a whole model.
inline constexpr const char* kTextHalf = "model.language_model";

// A kind of model whose text half can be loaded.
struct WholeModel {
  std::string model_type;
  // The model_types that its text half may have; the first one if config.json names none.
  std::vector<std::string> text_types;
  bool ties_by_default;          // what tie_word_embeddings is if config.json does not have it
  bool may_be_flat;              // old files have the settings of the text half beside vision_config
  nlohmann::json text_defaults;  // settings that files leave out
};

const std::vector<WholeModel>& whole_models();

// Returns nullptr if config.json's model_type is of no such model.
const WholeModel* whole_model_of(const nlohmann::json& config);

// The same of a directory's config.json; false also if it cannot be read.
bool is_whole_model(const std::filesystem::path& directory);

// Returns the settings of the text half of such a model as one flat object, with kWholeModelType. Throws
// FormatError (the message starts with `where`) if there are none, or they are of another kind of model.
nlohmann::json text_half_of(const nlohmann::json& config, const WholeModel& whole, const std::string& where);

// Sets keys of a config.json, in text_config if there is one; null removes a key.
void change_config(nlohmann::ordered_json& config, const nlohmann::ordered_json& changes);

// Returns whether the files of a directory may have other names than Transformers' modules: those of a whole
// model, and of T5Gemma, whose head is lm_head.out_proj; false also if config.json cannot be read.
bool has_stored_names(const std::filesystem::path& directory);

// Brings the tensors of such a model to the names of Transformers' modules (the head's is lm_head.weight),
// and puts those of the other half apart (ModelWeights::others).
void separate_text_half(ModelWeights& weights);

// Returns the text half's tensors under the names that such tensors have in the files of `base`.
TensorSources as_stored(const ModelWeights& base, const TensorSources& text_half);

// The same, and with the tensors of the other half. `base` must outlive the result.
TensorSources whole_again(const ModelWeights& base, const TensorSources& text_half);

// Returns the largest modules that have only tensors of the other half, by their names in Transformers.
std::vector<std::string> modules_of_other_half(const ModelWeights& weights);

// Returns the names of all files of a directory that are neither weights, config.json, nor written by a run.
std::vector<std::string> other_files(const std::filesystem::path& directory);

}  // namespace trainer
