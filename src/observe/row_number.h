// Numbers of metric rows.
#pragma once

#include <optional>

#include <nlohmann/json.hpp>

namespace trainer {

// Returns a number of the row; nothing if it is absent or null (a stored NaN).
inline std::optional<double> row_number(const nlohmann::ordered_json& values, const char* key) {
  const auto found = values.find(key);
  if (found == values.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

}  // namespace trainer
