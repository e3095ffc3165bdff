// The functions that every template has: range, namespace, dict, raise_exception, strftime_now.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/value.h"

namespace trainer::jinja {

// raise_exception(message): the template itself refuses.
struct RaisedByTemplate : RenderError {
  using RenderError::RenderError;
};

// None when there is no global of that name. Throws Unsupported for jinja2's globals that are missing here.
std::optional<Value> find_global(const std::string& name);

// namespace.name = value; throws RenderError when `target` is no namespace.
void set_in_namespace(const Value& target, const std::string& name, Value value);

}  // namespace trainer::jinja
