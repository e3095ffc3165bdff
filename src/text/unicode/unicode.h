// Properties of characters, as in the `tokenizers` library, which has them from Rust's standard library and
// its `regex` crate.
#pragma once

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

}  // namespace trainer
