// The steps of a tokenizer, read from tokenizer.json of the `tokenizers` library or from a SentencePiece
// model: normalize, split into words, turn words into ids, and add ids at both ends. A decoder turns ids into
// text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/word_model.h"

namespace trainer {

struct Pipeline {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const WordModel> model;
  Decoder decoder;

  // The model's vocabulary: from the names of tokens in files ("Ġthe", "▁the") to ids, and from ids to names.
  std::unordered_map<std::string, int32_t> vocabulary;
  std::vector<std::optional<std::string>> names;
  std::optional<int32_t> unk;  // the id of unknown text
  AddedTokens added_tokens;
  std::vector<int32_t> prefix, suffix;  // ids that the default call adds around a text

  std::optional<int32_t> find(std::string_view name) const {  // in the vocabulary
    const auto found = vocabulary.find(std::string(name));
    return found == vocabulary.end() ? std::nullopt : std::optional(found->second);
  }
};

}  // namespace trainer
