// Tokenizers that Transformers makes by their class, whatever steps tokenizer.json has.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

namespace trainer {

// Returns whether AutoTokenizer of Transformers 5 loads the files as Qwen2Tokenizer: tokenizer_class says so,
// or the model_type of config.json decides.
bool is_qwen2_tokenizer(const std::filesystem::path& directory);

// Puts the steps of that class in place of those in the content of a tokenizer.json: its normalizer and
// pre_tokenizer, and how its model merges. The vocabulary, merges, added tokens and post_processor stay. If
// texts may become other ids thereby, a warning says so. `where`: the file.
void put_qwen2_steps(nlohmann::json& tokenizer, const std::string& where);

}  // namespace trainer
