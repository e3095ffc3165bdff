// Formatting: Python's "%" of strings and str.format().
#pragma once

#include "text/jinja/value.h"

namespace trainer::jinja {

// format % values: values is a tuple, a dict, or a single value.
Text printf_format(const Text& format, const Value& values);

// format.format(*positional, **named)
Text brace_format(const Text& format, const Arguments& arguments);

// Escapes & < > ' " as jinja2 does.
Text escape_html(const Text& text);

}  // namespace trainer::jinja
