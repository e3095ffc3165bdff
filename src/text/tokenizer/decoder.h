// Puts the text of a list of tokens together.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/regex.h"

namespace trainer {

// Steps that are applied in the order in which they were added, each to all tokens. Safe to use from several
// threads at once.
class Decoder {
 public:
  // Tokens that are names of bytes are these bytes, all together are the text; bytes that form no character
  // become U+FFFD.
  void add_byte_level() { steps_.emplace_back(ByteLevel{}); }
  // A blank for each `replacement`; none in the first token unless the scheme is `never`.
  void add_metaspace(std::string replacement, PrependScheme scheme) {
    steps_.emplace_back(Metaspace{std::move(replacement), scheme});
  }
  void add_replace(Regex pattern, std::string content) {
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  }
  // Neighbouring tokens <0x00> to <0xFF> become the characters that they form, or U+FFFD for each.
  void add_byte_fallback() { steps_.emplace_back(ByteFallback{}); }
  // All tokens become one.
  void add_fuse() { steps_.emplace_back(Fuse{}); }
  // Takes up to so many `content` (one character) off the ends of each token.
  void add_strip(std::string content, size_t start, size_t stop) {
    steps_.emplace_back(Strip{std::move(content), start, stop});
  }

  // Without steps: the tokens with blanks between them.
  std::string decode(std::vector<std::string> tokens) const;
  // Whether it does nothing but add_byte_level().
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
  struct Fuse {
    Tokens apply(Tokens tokens) const;
  };
  struct Strip {
    std::string content;
    size_t start, stop;
    Tokens apply(Tokens tokens) const;
  };
  std::vector<std::variant<ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip>> steps_;
};

}  // namespace trainer
