// Searching, splitting, replacing and padding of texts.
#pragma once

#include "text/jinja/value.h"

namespace trainer::jinja {

// The first position of `sought` at or after `at`, or std::string::npos. Takes linear time, unlike
// std::string::find.
size_t find_bytes(std::string_view bytes, std::string_view sought, size_t at);
// The last position of `sought` at or before `at`.
size_t find_last_bytes(std::string_view bytes, std::string_view sought, size_t at = std::string_view::npos);

// Splits at `separator`, or at runs of white space if it is nullptr. Splits at most `limit` times, starting
// from the left or from the right; a negative limit means no limit.
List split_left(const Text& text, const Text* separator, int64_t limit);
List split_right(const Text& text, const Text* separator, int64_t limit);
List split_lines(const Text& text, bool keep_ends);

// Replaces the first `limit` occurrences of `old` with `by`; all of them if `limit` is negative.
Text replace(const Text& text, const Text& old, const Text& by, int64_t limit);

// Pads the text to `width` characters. Its place: '<' left, '>' right, '^' centered as format() does it, 'c'
// centered as str.center() does it.
Text padded(const Text& text, int64_t width, const Text& fill, char side);

}  // namespace trainer::jinja
