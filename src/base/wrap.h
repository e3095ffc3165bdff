// Wraps and pads text for output in columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// Returns the number of UTF-8 characters; each counts as one column.
size_t count_characters(std::string_view text);

// Returns the lines of `text`, wrapped between words at `width` columns (0: never). A longer word stays
// whole. Line breaks in the text are kept.
std::vector<std::string> wrapped(const std::string& text, size_t width);

// padded_left() adds spaces on the left up to `width` columns, padded_right() on the right.
std::string padded_left(const std::string& text, size_t width);
std::string padded_right(const std::string& text, size_t width);

}  // namespace trainer
