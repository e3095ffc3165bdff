// Searching, splitting, replacing and padding of texts.
#pragma once

#include "text/jinja/value.h"

namespace trainer::jinja {

// The first position of `sought` from `at` on, or std::string::npos. Always in linear time, unlike
// std::string::find.
size_t find_bytes(std::string_view bytes, std::string_view sought, size_t at);
// The last such position, at `at` or before it.
size_t find_last_bytes(std::string_view bytes, std::string_view sought, size_t at = std::string_view::npos);

// At `separator`, or at runs of white space when it is nullptr; at most `limit` cuts unless that is negative,
// from the left or from the right.
List split_left(const Text& text, const Text* separator, int64_t limit);
List split_right(const Text& text, const Text* separator, int64_t limit);
List split_lines(const Text& text, bool keep_ends);

// Replaces the first `limit` occurrences of `old` (all when that is negative) by `by`.
Text replace(const Text& text, const Text& old, const Text& by, int64_t limit);

// Filled up to `width` characters; side '<': the text stands left, '>': right, '^': in the middle as format()
// has it, 'c': as str.center() has it.
Text padded(const Text& text, int64_t width, const Text& fill, char side);

}  // namespace trainer::jinja
