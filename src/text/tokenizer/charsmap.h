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

}  // namespace trainer
