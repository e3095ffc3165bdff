// SentencePiece's normalization (NFKC and more) as Transformers' T5 tokenizer applies it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// A table from short byte strings to their replacements: a double-array trie (the layout of
// github.com/s-yata/darts-clone) followed by the replacements, each ended by a zero byte.
//
// SentencePiece itself replaces the longest match at each place. The `tokenizers` library, which Transformers
// uses and whose ids are the reference here, goes from grapheme to grapheme: one of less than 6 bytes is
// replaced as a whole by what its SHORTEST matching prefix maps to; others go character by character. The two
// differ only where combining marks meet characters that are replaced (text that is not composed, such as NFD
// Vietnamese).
class Charsmap {
 public:
  // An empty blob changes nothing. Throws FormatError "WHERE: ..." when the blob is damaged.
  Charsmap(std::string blob, const std::string& where);
  std::string normalize(std::string_view text) const;  // `text` is valid UTF-8

 private:
  // The replacement of the shortest prefix of `text` that is in the table; nullptr if none is.
  const char* find(std::string_view text) const;
  void append_grapheme(std::string_view grapheme, std::string& out) const;

  // Skips characters that stay as they are and are graphemes by themselves; for Latin text that is quick to
  // see. Returns the index after them.
  size_t skip_kept(std::string_view text, size_t at) const;

  std::vector<uint32_t> trie_;
  std::string replacements_;
  static constexpr char32_t kFirstMark = 0x300;  // no character below it combines with the one before
  std::array<bool, kFirstMark> kept_{};
};

}  // namespace trainer
