// Added tokens: special tokens, and others that users added. They are found in the text before anything else
// happens to it. Works like `AddedVocabulary` of the `tokenizers` library.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trainer {

// A set of byte strings, each with an id, searched byte by byte.

class Trie {
 public:
  static constexpr int32_t kRoot = 0, kNone = -1;

  // If a string is inserted twice, the first one counts.
  void insert(std::string_view text, int32_t id);
  // Returns the child of a node for this byte, or kNone.
  int32_t child(int32_t node, char byte) const;
  // Returns the id of the string that ends at this node, or kNone.
  int32_t id(int32_t node) const { return nodes_[node].id; }
  bool has_start(char byte) const { return child(kRoot, byte) != kNone; }

 private:
  struct Node {
    std::vector<std::pair<char, int32_t>> children;
    int32_t id = kNone;
  };
  std::vector<Node> nodes_{1};
  std::array<int32_t, 256> starts_{};  // the children of the root; 0: none
};

struct AddedToken {
  std::string content;
  bool special = false;      // left out by decode(skip_special_tokens)
  bool single_word = false;  // matches only where no letter or digit touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // searched for in the normalized text, not in the raw text
  bool operator==(const AddedToken&) const = default;
};

class AddedTokens {
 public:
  // Adds a token with this id, or changes the flags of a known one.
  void add(const AddedToken& token, int32_t id);
  // Adds a token as the `tokenizers` library does. It keeps the id that it already has; otherwise it gets
  // `vocabulary_id`, the id of its name in the model's vocabulary, which has `vocabulary_size` ids; otherwise
  // the next free one. Throws FormatError "WHERE: ..." when the file states another id.
  void add(const AddedToken& token, std::optional<int32_t> vocabulary_id, int32_t vocabulary_size,
           std::optional<int32_t> stated_id, const std::string& where);
  void make_special(int32_t id) { tokens_.at(id).special = true; }
  // Adds a user's list of tokens. They are not special, and are searched for in normalized text; but blanks,
  // and those whose blanks `normalize` changes, are searched for as they are: T5's normalizer makes a space
  // of "\n", and that token would take all spaces. Tokens that were added before stay as they are. `find`
  // looks up a name in the model's vocabulary.
  void add(const std::vector<std::string>& contents,
           const std::function<std::string(std::string_view)>& normalize,
           const std::function<std::optional<int32_t>(std::string_view)>& find, int32_t vocabulary_size);
  // Call this after the last change. `normalize` is what the tokenizer does to text before it searches for
  // tokens with normalized == true. Such tokens are normalized too, and decode to their normalized text.
  void prepare(const std::function<std::string(std::string_view)>& normalize);

  std::optional<int32_t> id_of(std::string_view content) const;
  // The text that a token decodes to; nullptr if it is not an added token.
  const std::string* text_of(int32_t id) const;
  // Returns whether decode(skip_special_tokens) leaves this token out. As in the `tokenizers` library, the
  // text that it decodes to decides: a special token that normalization changes is kept.
  bool is_special(int32_t id) const;
  int32_t largest_id() const { return largest_id_; }  // -1: none
  const std::map<int32_t, AddedToken>& all() const { return tokens_; }

  // An added token, or the text between two of them (id -1).
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
