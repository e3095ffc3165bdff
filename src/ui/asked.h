// What the body of a request says.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace trainer::ui {

// Returns the text under a key; `otherwise` if there is none, or it is no text.
inline std::string text_in(const nlohmann::ordered_json& asked, const char* key,
                           const std::string& otherwise = "") {
  const auto found = asked.find(key);
  return found != asked.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

}  // namespace trainer::ui
