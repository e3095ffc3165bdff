// Upper, lower and title case of single characters, as Python has them.
#pragma once

#include "text/jinja/text.h"

namespace trainer::jinja {

Text upper(const Text& text);
Text lower(const Text& text);
Text capitalize(const Text& text);  // the first character in title case, the others lower
Text swap_case(const Text& text);
Text title(const Text& text);  // str.title()
Text case_fold(const Text& text);

bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
// Whether the character has case at all.
bool is_cased(char32_t c);

}  // namespace trainer::jinja
