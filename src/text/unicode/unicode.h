// Properties of characters, as the `tokenizers` library (the standard library and the `regex` crate of Rust)
// has them.
#pragma once

namespace trainer {

// The property White_Space of Unicode.
bool is_white_space(char32_t code_point);
// What str.isspace() of Python says of one character.
bool is_python_space(char32_t code_point);
// Letters, marks, decimal digits, connectors and joiners: \w of Unicode's Technical Standard 18.
bool is_word_character(char32_t code_point);
// \p{L} and \p{N} of the library's regular expressions.
bool is_letter(char32_t code_point);
bool is_number(char32_t code_point);
// The general categories N (of the step Digits, which knows newer ones than \p{N}), P (or ASCII punctuation)
// and M.
bool is_numeric(char32_t code_point);
bool is_punctuation(char32_t code_point);
bool is_mark(char32_t code_point);
// Newer than the library's tables of normal forms, which therefore leave it as it is.
bool is_left_alone_by_normal_forms(char32_t code_point);

}  // namespace trainer
