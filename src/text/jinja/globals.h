// The functions that every template has: range, namespace, dict, raise_exception, strftime_now.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/moment.h"
#include "text/jinja/value.h"

namespace trainer::jinja {

// The template called raise_exception(message).
struct RaisedByTemplate : RenderError {
  using RenderError::RenderError;
};

// The function that tells templates the date and the time.
inline constexpr const char* kAsksTheClock = "strftime_now";

// Returns nullopt if there is no global with that name. `moment`: what strftime_now() tells. Throws
// Unsupported for globals that only jinja2 has.
std::optional<Value> find_global(const std::string& name, const Moment& moment);

// namespace.name = value. Throws RenderError if `target` is not a namespace.
void set_in_namespace(const Value& target, const std::string& name, Value value);

}  // namespace trainer::jinja
