// UTF-8: checking, walking over code points, and repairing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// The length of the longest prefix of `text` that is valid UTF-8 (no overlong forms, no surrogates).
size_t valid_utf8_prefix(std::string_view text);

// Throws DataError that names the byte and its offset unless `text` is valid UTF-8.
void require_utf8(std::string_view text);

// The code point that starts at text[offset]; moves offset past it. `text` must be valid UTF-8.
char32_t next_code_point(std::string_view text, size_t& offset);

// The number of bytes of the character that starts at text[offset]. `text` must be valid UTF-8.
size_t character_length(std::string_view text, size_t offset);

void append_code_point(std::string& text, char32_t code_point);

// The characters of valid UTF-8; and one character in it.
std::vector<char32_t> code_points(std::string_view text);
std::string utf8(char32_t code_point);

// `bytes` with U+FFFD for each maximal part that can begin no character (Unicode 15, 3.9, "substitution of
// maximal subparts"; what Rust's from_utf8_lossy and Python's errors="replace" do).
std::string repair_utf8(std::string_view bytes);

}  // namespace trainer
