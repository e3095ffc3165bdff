// What tokenizer_config.json and special_tokens_map.json define about tokens.
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
  std::map<std::string, std::string> by_name;  // bos_token, eos_token, ...: the text of each that is there
  // Tokens with a name (eos_token, image_token, ...): special whatever else is said of them.
  std::vector<AddedToken> named;
  // additional_special_tokens: special unless they are declared otherwise.
  std::vector<AddedToken> additional;
  // `added_tokens_decoder`: tokens with their ids, by id.
  std::vector<std::pair<int32_t, AddedToken>> added;
  std::optional<int64_t> extra_ids;  // T5
  // What tokenizer_config.json says of add_bos_token and add_eos_token; neither is there: tokenizer.json
  // decides what goes around a text.
  struct Around {
    bool bos, eos;
  };
  std::optional<Around> around;
};

// Both files may be missing. As in Transformers, special_tokens_map.json is used only when
// tokenizer_config.json has no `added_tokens_decoder`, and then has precedence over it.
SpecialTokens read_special_tokens(const std::filesystem::path& directory);

// Makes them added tokens as Transformers does on loading. `find` looks a name up in the model's vocabulary,
// which has ids below `vocabulary_size`; `where` opens messages.
void add_special_tokens(const SpecialTokens& special,
                        const std::function<std::optional<int32_t>(std::string_view)>& find,
                        int32_t vocabulary_size, const std::string& where, AddedTokens& added);

}  // namespace trainer
