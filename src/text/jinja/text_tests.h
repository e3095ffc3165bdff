// str.isalpha() and others: whether all characters are of one kind.
#pragma once

#include "text/jinja/text.h"

namespace trainer::jinja {

bool is_alnum(const Text& text);
bool is_alpha(const Text& text);
bool is_ascii(const Text& text);
bool is_decimal(const Text& text);
bool is_digit(const Text& text);  // throws Unsupported for digits that are not decimal, such as superscripts
bool is_lower_text(const Text& text);
bool is_printable_text(const Text& text);
bool is_space_text(const Text& text);
bool is_title_text(const Text& text);
bool is_upper_text(const Text& text);

bool is_printable(char32_t c);

}  // namespace trainer::jinja
