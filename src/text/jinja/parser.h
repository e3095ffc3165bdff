// Parses a template's text into its tree.
#pragma once

#include <string>

#include "text/jinja/nodes.h"

namespace trainer::jinja {

struct ParsedTemplate {
  Block body;
  bool has_generation;  // whether it contains {% generation %}
};

// Adds the template's names to `names`. Throws SyntaxError, also for unsupported tags, filters and tests.
ParsedTemplate parse_template(const std::string& source, Names& names);

}  // namespace trainer::jinja
