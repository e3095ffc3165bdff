// Checks UTF-8, iterates over its code points, and repairs it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// Returns the length of the longest prefix of `text` that is valid UTF-8 (no overlong forms, no surrogates).
size_t valid_utf8_prefix(std::string_view text);

// Throws a DataError that names the byte and its offset if `text` is not valid UTF-8.
void require_utf8(std::string_view text);

// Returns the code point that starts at text[offset], and moves `offset` past it. `text` must be valid UTF-8.
char32_t next_code_point(std::string_view text, size_t& offset);

// Returns the number of bytes of the character that starts at text[offset]. `text` must be valid UTF-8.
size_t character_length(std::string_view text, size_t offset);

void append_code_point(std::string& text, char32_t code_point);

// From valid UTF-8 to its characters, and from a character to UTF-8.
std::vector<char32_t> code_points(std::string_view text);
std::string utf8(char32_t code_point);

// Returns `bytes` with `replacement` in place of each invalid part, as Rust's from_utf8_lossy and Python's
// errors="replace" do (Unicode 15, 3.9, "substitution of maximal subparts").
std::string repair_utf8(std::string_view bytes, std::string_view replacement = "\ufffd");

}  // namespace trainer
