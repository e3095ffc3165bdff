// Text and numbers as YAML scalars.
#include <array>
#include <charconv>
#include <regex>
#include <set>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "config/value.h"

namespace trainer::config {

std::string text_as_yaml(const std::string& text) {
  // YAML 1.1 readers take these for something else than text.
  static const std::set<std::string> reserved{"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  static const std::regex plain("[A-Za-z_./][A-Za-z0-9_./-]*");
  const std::string lower = lower_case(text);
  const bool like_number =
      text.starts_with('.') && lower.find_first_not_of(".0123456789e_-inaf") == std::string::npos;
  if (std::regex_match(text, plain) && !reserved.contains(lower) && !like_number) return text;
  // A JSON string is a double-quoted YAML one.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string number_as_yaml(double value) {
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), end);
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) text.insert(exponent, ".0");
  return text;
}

}  // namespace trainer::config
