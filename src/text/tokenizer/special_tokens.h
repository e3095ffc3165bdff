// The special tokens of tokenizer_config.json, special_tokens_map.json and added_tokens.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/added_tokens.h"

namespace trainer {

struct SpecialTokens {
  std::optional<std::string> eos, pad, unk;
  std::map<std::string, std::string> by_name;  // bos_token, eos_token, ... -> its text
  // Tokens with a name (eos_token, image_token, ...). They are special, whatever their flags say.
  std::vector<AddedToken> named;
  // additional_special_tokens. They are special unless their flags say otherwise.
  std::vector<AddedToken> additional;
  // `added_tokens_decoder`: tokens with their ids, by id.
  std::vector<std::pair<int32_t, AddedToken>> added;
  // added_tokens.json, the older form of that: tokens with the ids that they had when it was written, by id.
  std::vector<std::pair<int32_t, AddedToken>> added_before;
  std::optional<int64_t> extra_ids;  // T5
  // add_bos_token and add_eos_token. As in Transformers 5, tokenizer.json decides which ids are added around
  // a text, whatever these say.
  std::optional<bool> add_bos, add_eos;
  bool cleans_up_spaces = false, cleans_up_spaces_of_bpe = false;  // in decode()
  bool fixes_mistral_regex = false;
};

// All files may be missing. As in Transformers, special_tokens_map.json and added_tokens.json are read only
// when tokenizer_config.json has no `added_tokens_decoder`; then the first overrides tokenizer_config.json.
SpecialTokens read_special_tokens(const std::filesystem::path& directory);

// Adds these tokens to the added tokens, as Transformers does on loading. `find` looks up a name in the
// model's vocabulary, whose ids are below `vocabulary_size`. `directory`: of the files, for messages.
void add_special_tokens(const SpecialTokens& special,
                        const std::function<std::optional<int32_t>(std::string_view)>& find,
                        int32_t vocabulary_size, const std::filesystem::path& directory, AddedTokens& added);

}  // namespace trainer
