// Properties of characters, as in the `tokenizers` library, which has them from Rust's standard library and
// its `regex` crate.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace trainer {

// Unicode's property White_Space.
bool is_white_space(char32_t code_point);
// Python's str.isspace() for one character.
bool is_python_space(char32_t code_point);
// \w of Unicode's Technical Standard 18: letters, marks, decimal digits, connectors and joiners.
bool is_word_character(char32_t code_point);
// \p{L} and \p{N} in the library's regular expressions.
bool is_letter(char32_t code_point);
bool is_number(char32_t code_point);
// The general categories N (for the step Digits, which knows newer characters than \p{N}), P (and all ASCII
// punctuation) and M.
bool is_numeric(char32_t code_point);
bool is_punctuation(char32_t code_point);
bool is_mark(char32_t code_point);
// The character is newer than the library's tables of normal forms, so these do not change it.
bool is_left_alone_by_normal_forms(char32_t code_point);

// Upper, lower and title case of characters, as in Python.

// These return the result for a character in UTF-8. It may be several characters. The lower case of a capital
// sigma depends on the characters around it, so that function takes the whole text and the index in it.
std::string upper_of(char32_t c);
std::string title_of(char32_t c);
std::string lower_of(std::span<const char32_t> text, size_t at);
std::string folded(char32_t c);  // str.casefold()

// str.lower()
std::string lower(std::string_view text);

bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
// Returns whether the character has upper and lower case.
bool is_cased(char32_t c);

}  // namespace trainer
