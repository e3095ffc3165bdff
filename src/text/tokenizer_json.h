// tokenizer.json of the `tokenizers` library, as far as byte-level BPE uses it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"

namespace trainer {

struct TokenizerJson {
  bool nfc = false;
  PreTokenizer pre_tokenizer;
  std::unordered_map<std::string, int32_t> vocabulary;  // names as they stand in the file ("Ġthe")
  BpeModel model;
  AddedTokens added_tokens;
  std::vector<int32_t> prefix, suffix;  // what the default call puts around a text

  std::optional<int32_t> find(std::string_view name) const;  // in the vocabulary
};

// Throws FormatError that names the construct for all that would be done differently, or is damaged.
TokenizerJson read_tokenizer_json(const std::filesystem::path& path);

}  // namespace trainer
