// Text in lines of a width.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// Characters of UTF-8, each taken as one column.
size_t count_characters(std::string_view text);

// Broken between words at `width` columns (0: never), where a word is not longer than that; what the text
// itself breaks stays so.
std::vector<std::string> wrapped(const std::string& text, size_t width);

// Filled with blanks up to `width` columns, on the left or on the right.
std::string padded_left(const std::string& text, size_t width);
std::string padded_right(const std::string& text, size_t width);

}  // namespace trainer
