// Attributes and methods of Python's own types.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/value.h"

namespace trainer::jinja {

// Returns an attribute of a text, list, tuple, dict or number; nullopt if Python's type has no such
// attribute. Throws Unsupported for an attribute that only Python has, and RenderError if the sandbox forbids
// it.
std::optional<Value> method_of(const Value& value, const std::string& name);

// Returns the function that implements a method of a text; nullptr if there is none with that name.
using TextMethod = Value (*)(const Text& self, const Arguments& arguments);
TextMethod text_method(const std::string& name);

// The views that dict.keys(), dict.values() and dict.items() return.
Value dict_view(const Value& dict, const std::string& name);

// Returns a generator, which can be looped over once.
Value generator(List items, std::string type_name = "generator");

}  // namespace trainer::jinja
