// Turns generated tokens into text, without special tokens and up to a stop string. Also for streaming.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/text/tokenizer.h"

namespace trainer {

class AnswerText {
 public:
  // An answer ends before the first of `stops` in its text, where special tokens count as text. A stop string
  // that would end inside the spelling of a special token ("end" in <|im_end|>) is none. The tokenizer must
  // outlive this object. Ids beyond its vocabulary (embeddings are often padded) give no text.
  // `ends`: tokens that end an answer. As its last token, such a one gives no text, also if it is not
  // special.
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops, std::vector<int32_t> ends = {});

  // Returns whether the last of these tokens completed a stop string.
  bool stops_at(std::span<const int32_t> ids) const;
  // Returns the text before the first stop string.
  std::string text(std::span<const int32_t> ids, bool skip_special_tokens = true) const;
  // Returns a text as the tokenizer gives it back: what text() would give of an answer that is this text.
  std::string as_answer(std::string_view text, bool skip_special_tokens) const;
  // Returns how many bytes of text(ids) can be shown while more tokens may follow. An incomplete character at
  // the end, or a possible beginning of a stop string, is not shown yet.
  size_t shown(const std::string& text) const;

 private:
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;
  // Where the first stop string begins in the text of these ids; npos: none.
  size_t find_stop(std::span<const int32_t> ids, const std::string& text) const;
  bool ends_inside_special(std::span<const int32_t> ids, const std::string& text, size_t end) const;

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::vector<int32_t> ends_;
  size_t longest_ = 0;  // bytes
};

}  // namespace trainer
