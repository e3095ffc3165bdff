// Tokens that are searched for in the text before anything else happens to it: special tokens and others that
// users added. Works like `AddedVocabulary` of the `tokenizers` library.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer/trie.h"

namespace trainer {

struct AddedToken {
  std::string content;
  bool special = false;      // left out by decode(skip_special_tokens)
  bool single_word = false;  // only where no letter or digit touches it
  bool lstrip = false;       // takes the blanks before it
  bool rstrip = false;       // takes the blanks after it
  bool normalized = false;   // looked for in the normalized text instead of the raw one
  bool operator==(const AddedToken&) const = default;
};

class AddedTokens {
 public:
  // Adds a token with this id, or changes the flags of a known one.
  void add(const AddedToken& token, int32_t id);
  // Adds a token as the `tokenizers` library does: under the id it has already, else the one that the model's
  // vocabulary (of so many ids) gives its name, else the next free one. Throws FormatError "WHERE: ..." when
  // the file states another id.
  void add(const AddedToken& token, std::optional<int32_t> vocabulary_id, int32_t vocabulary_size,
           std::optional<int32_t> stated_id, const std::string& where);
  void make_special(int32_t id) { tokens_.at(id).special = true; }
  // Adds tokens as a user's list: not special, looked for in normalized text; the known ones stay as they
  // are. `find` looks a name up in the model's vocabulary.
  void add(const std::vector<std::string>& contents,
           const std::function<std::optional<int32_t>(std::string_view)>& find, int32_t vocabulary_size);
  // Call this after the last change. `normalize` is what the tokenizer does to text before it searches for
  // tokens with normalized == true. Such tokens are normalized too, and decode to their normalized text.
  void prepare(const std::function<std::string(std::string_view)>& normalize);

  std::optional<int32_t> id_of(std::string_view content) const;
  // The text that a token decodes to; nullptr if it is not an added token.
  const std::string* text_of(int32_t id) const;
  // Whether decode(skip_special_tokens) leaves it out. As in the `tokenizers` library, that goes by what it
  // decodes to: a special token that normalization changes is kept.
  bool is_special(int32_t id) const;
  int32_t largest_id() const { return largest_id_; }  // -1: none
  const std::map<int32_t, AddedToken>& all() const { return tokens_; }

  // A stretch of text without added tokens (id -1), or an added token.
  struct Piece {
    std::string_view text;
    int32_t id;
  };
  // Splits at tokens with this value of `normalized`. No piece is empty.
  void split(std::string_view text, bool normalized, std::vector<Piece>& pieces) const;
  bool has_normalized() const { return has_normalized_; }

 private:
  struct Prepared {
    std::string text;
    bool special;
  };
  std::map<int32_t, AddedToken> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<int32_t, Prepared> prepared_;
  Trie raw_, normalized_;
  bool has_normalized_ = false;
  int32_t largest_id_ = -1;
};

}  // namespace trainer
