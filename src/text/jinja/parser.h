// Parses a template's text into its tree.
#pragma once

#include <string>

#include "text/jinja/nodes.h"

namespace trainer::jinja {

struct ParsedTemplate {
  Block body;
  bool has_generation;  // {% generation %} stands in it
};

// Throws SyntaxError, also for tags, filters and tests that are not supported. Names are added to `names`.
ParsedTemplate parse_template(const std::string& source, Names& names);

}  // namespace trainer::jinja
