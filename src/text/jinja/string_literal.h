// The escapes of string literals in templates.
#pragma once

#include <string>

namespace trainer::jinja {

// What stands between the quotes, with Python's escapes resolved. Throws SyntaxError for a damaged one.
std::string unescape_literal(const std::string& literal, int line);

}  // namespace trainer::jinja
