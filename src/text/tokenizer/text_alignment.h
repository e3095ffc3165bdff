// Where each byte of a text that was changed comes from in the text as it was.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/text/tokenizer.h"

namespace trainer {

struct AlignedText {
  explicit AlignedText(std::string_view original);

  // Appends `changed`, which stands for bytes [begin, end) of `before`: character by character where both
  // have as many, else each byte of it for all of them.
  void append(const AlignedText& before, size_t begin, size_t end, std::string_view changed);

  std::string bytes;
  std::vector<TextRange> ranges;  // of each byte
};

// What stands for a blank in words; "": a blank. never_a_blank: it is put in front of words, which have none.
struct BlankSign {
  std::string_view text;
  bool never_a_blank;
};

// `word` was made of a part of `text` behind `cursor`: blanks written as `sign`, one of these put in front,
// characters left out. The range in `text` of each byte of it, of what was put in front that of the next
// character; `cursor` moves behind them.
std::vector<TextRange> align_word(std::string_view word, std::string_view text, BlankSign sign,
                                  size_t& cursor);

}  // namespace trainer
