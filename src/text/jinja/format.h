// Formatting: Python's "%" of strings and str.format().
#pragma once

#include "text/jinja/value.h"

namespace trainer::jinja {

// format % values: values is a tuple, a dict, or a single value.
Text printf_format(const Text& format, const Value& values);

// format.format(*positional, **named)
Text brace_format(const Text& format, const Arguments& arguments);

// & < > ' " as jinja2 escapes them.
Text escape_html(const Text& text);

}  // namespace trainer::jinja
