// The functions that every template has: range, namespace, dict, raise_exception, strftime_now.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/value.h"

namespace trainer::jinja {

// The template called raise_exception(message).
struct RaisedByTemplate : RenderError {
  using RenderError::RenderError;
};

// Returns nullopt if there is no global with that name. Throws Unsupported for globals that only jinja2 has.
std::optional<Value> find_global(const std::string& name);

// namespace.name = value. Throws RenderError if `target` is not a namespace.
void set_in_namespace(const Value& target, const std::string& name, Value value);

}  // namespace trainer::jinja
