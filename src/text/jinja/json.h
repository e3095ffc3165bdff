// Converts JSON to values, and writes it like Python's json.dumps.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "text/jinja/value.h"

namespace trainer::jinja {

// All strings but the keys get the `origin`.
Value from_json(const nlohmann::ordered_json& json, Origin origin = {});

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent;
  Text item_separator = Text(", "), key_separator = Text(": ");
};

// json.dumps(value, ...). Throws RenderError for what JSON cannot hold.
Text to_json(const Value& value, const JsonStyle& style);

}  // namespace trainer::jinja
