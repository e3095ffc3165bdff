// Maps each byte of a changed text to its range in the original text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/text/tokenizer.h"

namespace trainer {

struct AlignedText {
  explicit AlignedText(std::string_view original);

  // Appends `changed`, which replaces bytes [begin, end) of `before`. If both have the same number of
  // characters, they are mapped one to one; otherwise each byte of `changed` maps to the whole range.
  void append(const AlignedText& before, size_t begin, size_t end, std::string_view changed);

  std::string bytes;
  std::vector<TextRange> ranges;  // of each byte
};

// The sign that stands for a space in words; "" if it is a space itself. never_a_blank: the sign is only
// added in front of words, and words contain no spaces.
struct BlankSign {
  std::string_view text;
  bool never_a_blank;
};

// `word` was made from the part of `text` after `cursor`: spaces may be written as `sign`, a sign may have
// been added in front, and characters may have been left out. Returns the range in `text` of each byte of
// `word`; an added sign gets the range of the next character. `cursor` moves past the word.
std::vector<TextRange> align_word(std::string_view word, std::string_view text, BlankSign sign,
                                  size_t& cursor);

}  // namespace trainer
