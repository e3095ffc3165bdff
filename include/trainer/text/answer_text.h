// The text of generated tokens: without special tokens, ended by stop strings, whole or as it comes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/text/tokenizer.h"

namespace trainer {

class AnswerText {
 public:
  // An answer ends before the first of `stops` in its text, special tokens counted as their text. The
  // tokenizer must outlive it. Ids beyond its vocabulary (embeddings are often padded) stand for no text.
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops);

  // Whether the last of these tokens completed a stop string.
  bool stops_at(std::span<const int32_t> ids) const;
  // The text before the first stop string.
  std::string text(std::span<const int32_t> ids) const;
  // How much of text(ids) can be shown when more tokens may follow: neither half a character nor what may
  // become a stop string.
  size_t shown(const std::string& text) const;

 private:
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;
  size_t find_stop(const std::string& text) const;  // npos: none

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  size_t longest_ = 0;  // bytes
};

}  // namespace trainer
