// The steps of a tokenizer, as given by tokenizer.json of the `tokenizers` library or by a SentencePiece
// model: normalize, split into words, turn words into ids, add ids around them; and a decoder for the way
// back.
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

  // The model's vocabulary, by the names that files call its tokens ("Ġthe", "▁the"), and the other way.
  std::unordered_map<std::string, int32_t> vocabulary;
  std::vector<std::optional<std::string>> names;
  std::optional<int32_t> unk;  // what the model gives for unknown text
  AddedTokens added_tokens;
  std::vector<int32_t> prefix, suffix;  // what the default call puts around a text

  std::optional<int32_t> find(std::string_view name) const {  // in the vocabulary
    const auto found = vocabulary.find(std::string(name));
    return found == vocabulary.end() ? std::nullopt : std::optional(found->second);
  }
};

}  // namespace trainer
