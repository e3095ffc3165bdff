// The changes that a tokenizer makes to text before it splits it into words.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/regex.h"

namespace trainer {

// SentencePiece's normalization (NFKC and more) as Transformers' T5 tokenizer applies it.

// A table from short byte strings to their replacements: a double-array trie (the layout of
// github.com/s-yata/darts-clone) followed by the replacements, each ended by a zero byte.
//
// SentencePiece itself replaces the longest match at each place. The reference here is the `tokenizers`
// library, which Transformers uses. It goes from grapheme to grapheme: it replaces a grapheme of less than 6
// bytes as a whole by the replacement of its SHORTEST matching prefix, and any other grapheme character by
// character. The two differ only where combining marks follow characters that are replaced, in text that is
// not composed (such as Vietnamese in NFD).
class Charsmap {
 public:
  // An empty blob changes nothing. Throws FormatError "WHERE: ..." when the blob is damaged.
  Charsmap(std::string blob, const std::string& where);
  std::string normalize(std::string_view text) const;  // `text` is valid UTF-8

 private:
  // Returns the replacement of the shortest prefix of `text` that is in the table; nullptr if none is.
  const char* find(std::string_view text) const;
  void append_grapheme(std::string_view grapheme, std::string& out) const;

  // Skips characters that are graphemes by themselves and are not replaced, which is quick to check for Latin
  // text. Returns the index after them.
  size_t skip_kept(std::string_view text, size_t at) const;

  std::vector<uint32_t> trie_;
  std::string replacements_;
  static constexpr char32_t kFirstMark = 0x300;  // no character below it is a combining mark
  std::array<bool, kFirstMark> kept_{};
};

struct AlignedText;

// Unicode's normal forms, limited to the characters that the `tokenizers` library normalizes.
enum class NormalForm { c, d, kc, kd };

// A list of steps, applied in the order in which they were added. Safe to use from several threads at once.
class Normalizer {
 public:
  void add(NormalForm form) { steps_.emplace_back(form); }
  void add(Charsmap charsmap) { steps_.emplace_back(std::move(charsmap)); }
  // Adds `text` at the front, unless the text to normalize is empty.
  void add_prepend(std::string text) { steps_.emplace_back(Prepend{std::move(text)}); }
  void add_replace(Regex pattern, std::string content) {
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  }
  // Removes white space at the ends.
  void add_strip(bool left, bool right) { steps_.emplace_back(Strip{left, right}); }
  void add_lowercase() { steps_.emplace_back(Lowercase{}); }
  // Removes all combining marks.
  void add_strip_accents() { steps_.emplace_back(StripAccents{}); }

  // Returns the normalized text: `text` itself (valid UTF-8) if nothing changes, or a view into `storage`.
  std::string_view normalize(std::string_view text, std::string& storage) const;
  // Returns the same with the range in `text` that each byte comes from.
  AlignedText align(std::string_view text) const;
  // Returns how many bytes at the start of the normalized text the `tokenizers` library takes to be from the
  // first character of `text`. 0 if that was left out.
  size_t from_first_character(std::string_view text) const;

 private:
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Regex pattern;
    std::string content;
  };
  struct Strip {
    bool left, right;
  };
  struct Lowercase {};
  struct StripAccents {};
  std::vector<std::variant<NormalForm, Charsmap, Prepend, Replace, Strip, Lowercase, StripAccents>> steps_;
};

// Returns `text` (valid UTF-8) in a normal form.
std::string to_normal_form(std::string_view text, NormalForm form);
// Returns false when `text` is certainly in this normal form already. This is quick for most text.
bool may_change(std::string_view text, NormalForm form);

}  // namespace trainer
