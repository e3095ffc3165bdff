#include "base/byte_size.h"

#include <cmath>
#include <regex>

namespace trainer {

std::optional<int64_t> parse_byte_size(const std::string& text) {
  static const std::regex size("([0-9]{1,15}(?:\\.[0-9]{1,15})?) ?([kKMGT])(i?)B");
  std::smatch match;
  if (!std::regex_match(text, match, size)) return std::nullopt;
  const double base = match[3].length() > 0 ? 1024.0 : 1000.0;
  const char unit = match[2].str() == "K" ? 'k' : match[2].str()[0];
  const double power = static_cast<double>(std::string("kMGT").find(unit) + 1);
  const double bytes = std::stod(match[1]) * std::pow(base, power);
  return bytes < 9e18 ? std::optional(std::llround(bytes)) : std::nullopt;
}

}  // namespace trainer
