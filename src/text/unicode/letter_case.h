// Upper, lower and title case of characters, as in Python.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace trainer {

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
