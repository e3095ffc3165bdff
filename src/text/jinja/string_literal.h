// The escapes of string literals in templates.
#pragma once

#include <string>

namespace trainer::jinja {

// Replaces Python's escapes in the text between the quotes. Throws SyntaxError for a bad escape.
std::string unescape_literal(const std::string& literal, int line);

}  // namespace trainer::jinja
