// Upper, lower and title case of texts. Each character keeps its origin.
#pragma once

#include "text/jinja/text.h"

namespace trainer::jinja {

Text upper(const Text& text);
Text lower(const Text& text);
Text capitalize(const Text& text);  // the first character in title case, the others lower
Text swap_case(const Text& text);
Text title(const Text& text);  // str.title()
Text case_fold(const Text& text);

}  // namespace trainer::jinja
