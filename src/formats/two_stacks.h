// config.json of an encoder-decoder whose stacks have settings of their own (T5Gemma, T5Gemma 2): those of a
// Gemma decoder in `encoder` and in `decoder`.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace trainer {

bool is_of_two_stacks(std::string_view model_type);
bool has_two_stacks(const nlohmann::json& config);

// Returns the config in one form: `encoder` and `decoder` hold all settings of the stacks (T5Gemma 2 nests
// the encoder's in text_config, beside the vision tower's), with what files leave out; beside them stand the
// token ids and the vocab_size of the decoder, and T5Gemma 2's eoi_token_index. Throws FormatError (the
// message starts with `where`) if one of them is no object, or the vocabularies differ.
nlohmann::json with_whole_stacks(const nlohmann::json& config, const std::string& where);

// Sets a key of such a config.json, as it is in the file, in both of its stacks.
void set_in_stacks(nlohmann::ordered_json& config, const std::string& key,
                   const nlohmann::ordered_json& value);

}  // namespace trainer
