#include "base/checked_name.h"

#include <algorithm>

namespace trainer {
namespace {

constexpr size_t kLongestPart = 255, kLongestPath = 2000;  // bytes: NAME_MAX, and PATH_MAX without the folder

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool is_part(std::string_view part) {
  return !part.empty() && part.size() <= kLongestPart && part != "." && part != ".." &&
         part.find('/') == std::string_view::npos && std::ranges::none_of(part, is_control);
}

}  // namespace

std::optional<CheckedName> CheckedName::path(std::string_view text) {
  if (text.size() > kLongestPath) return std::nullopt;
  for (size_t begin = 0, end = 0; end != std::string_view::npos; begin = end + 1) {
    end = text.find('/', begin);
    if (!is_part(text.substr(begin, end - begin))) return std::nullopt;
  }
  return CheckedName(text);
}

std::optional<CheckedName> CheckedName::file(std::string_view text) {
  return is_part(text) ? std::optional(CheckedName(text)) : std::nullopt;
}

std::optional<CheckedName> CheckedName::hash(std::string_view text) {
  const bool has_digits = text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return has_digits && (text.size() == 40 || text.size() == 64) ? std::optional(CheckedName(text))
                                                                : std::nullopt;
}

std::optional<CheckedName> CheckedName::commit(std::string_view text) {
  return text.size() == 40 ? hash(text) : std::nullopt;
}

}  // namespace trainer
