#include "trainer/text/json_bounds.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace trainer {
namespace {

// One past the closing quote of the string that opens at `at`.
size_t string_end(std::string_view json, size_t at) {
  for (at++; at < json.size() && json[at] != '"'; at++) {
    if (json[at] == '\\') at++;
  }
  return at + 1;
}

template <class Integer>
bool holds(std::string_view literal) {
  Integer value = 0;
  return std::from_chars(literal.data(), literal.data() + literal.size(), value).ec == std::errc();
}

}  // namespace

std::optional<std::string_view> integer_beyond_64_bits(std::string_view json) {
  for (size_t at = 0; at < json.size();) {
    if (json[at] == '"') {
      at = string_end(json, at);
      continue;
    }
    const size_t end = std::min(json.find_first_not_of("+-.eE0123456789", at), json.size());
    const std::string_view literal = json.substr(at, end - at);
    const bool integer = literal.size() > 1 && literal.find_first_of(".eE") == std::string_view::npos;
    if (integer && !holds<int64_t>(literal) && !holds<uint64_t>(literal)) return literal;
    at = std::max(end, at + 1);
  }
  return std::nullopt;
}

bool nested_too_deep(std::string_view json, int deepest) {
  int depth = 0;
  for (size_t at = 0; at < json.size() && depth <= deepest;) {
    if (json[at] == '[' || json[at] == '{') depth++;
    if (json[at] == ']' || json[at] == '}') depth--;
    at = json[at] == '"' ? string_end(json, at) : at + 1;
  }
  return depth > deepest;
}

}  // namespace trainer
