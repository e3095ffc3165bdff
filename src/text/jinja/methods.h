// Attributes and methods of Python's own types.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/value.h"

namespace trainer::jinja {

// The attribute of a text, list, tuple, dict or number; none when Python's type has no such attribute. Throws
// Unsupported for one that only Python has, RenderError for what the sandbox forbids.
std::optional<Value> method_of(const Value& value, const std::string& name);

// The function behind a method of a text; null when there is none of that name.
using TextMethod = Value (*)(const Text& self, const Arguments& arguments);
TextMethod text_method(const std::string& name);

// The views that dict.keys(), dict.values() and dict.items() return.
Value dict_view(const Value& dict, const std::string& name);

// A generator: can be looped over once.
Value generator(List items, std::string type_name = "generator");

}  // namespace trainer::jinja
