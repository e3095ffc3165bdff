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
#include <variant>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/word_model.h"

namespace trainer {

// Turns a list of tokens into text.

// A list of steps. Each is applied to all tokens, in the order in which they were added. Safe to use from
// several threads at once.
class Decoder {
 public:
  // Turns byte-level names back into bytes and joins them; invalid bytes become U+FFFD.
  void add_byte_level() { steps_.emplace_back(ByteLevel{}); }
  // Replaces each `replacement` by a space. The one at the start of the first token is removed instead,
  // unless the scheme is `never`.
  void add_metaspace(std::string replacement, PrependScheme scheme) {
    steps_.emplace_back(Metaspace{std::move(replacement), scheme});
  }
  void add_replace(Regex pattern, std::string content) {
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  }
  // Joins adjacent tokens <0x00> to <0xFF> into characters; if they are invalid, each becomes U+FFFD.
  void add_byte_fallback() { steps_.emplace_back(ByteFallback{}); }
  // Joins tokens that are bytes, and leaves out what is not UTF-8.
  void add_bytes() { steps_.emplace_back(Bytes{}); }
  // Joins all tokens into one.
  void add_fuse() { steps_.emplace_back(Fuse{}); }
  // Removes `content` (one character) up to `start` times from the start of each token, and up to `stop`
  // times from its end.
  void add_strip(std::string content, size_t start, size_t stop) {
    steps_.emplace_back(Strip{std::move(content), start, stop});
  }

  // Returns the text. Without any steps, this is the tokens with spaces between them.
  std::string decode(std::vector<std::string> tokens) const;
  // Returns whether add_byte_level() is the only step.
  bool is_byte_level() const { return steps_.size() == 1 && std::holds_alternative<ByteLevel>(steps_[0]); }

 private:
  using Tokens = std::vector<std::string>;
  struct ByteLevel {
    Tokens apply(Tokens tokens) const;
  };
  struct Metaspace {
    std::string replacement;
    PrependScheme scheme;
    Tokens apply(Tokens tokens) const;
  };
  struct Replace {
    Regex pattern;
    std::string content;
    Tokens apply(Tokens tokens) const;
  };
  struct ByteFallback {
    Tokens apply(Tokens tokens) const;
  };
  struct Bytes {
    Tokens apply(Tokens tokens) const;
  };
  struct Fuse {
    Tokens apply(Tokens tokens) const;
  };
  struct Strip {
    std::string content;
    size_t start, stop;
    Tokens apply(Tokens tokens) const;
  };
  std::vector<std::variant<ByteLevel, Metaspace, Replace, ByteFallback, Bytes, Fuse, Strip>> steps_;
};

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
  bool suffix_once = false;             // not where the text ends with it already
  bool is_bytes = false;                // ByT5: each byte of a text is a token

  std::optional<int32_t> find(std::string_view name) const {  // in the vocabulary
    const auto found = vocabulary.find(std::string(name));
    return found == vocabulary.end() ? std::nullopt : std::optional(found->second);
  }
};

}  // namespace trainer
