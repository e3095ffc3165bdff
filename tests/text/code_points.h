// Turns characters into text.
#pragma once

#include <string>
#include <vector>

#include "base/utf8.h"

namespace trainer {

inline std::string text_of(const std::vector<char32_t>& characters) {
  std::string text;
  for (const char32_t c : characters) append_code_point(text, c);
  return text;
}

inline bool is_surrogate(char32_t c) { return c >= 0xd800 && c < 0xe000; }

}  // namespace trainer
