#include "text/jinja/number_format.h"

#include <algorithm>
#include <cmath>

namespace trainer::jinja {
namespace {

std::string in_base(uint64_t value, unsigned base) {
  std::string out;
  do {
    out += "0123456789abcdef"[value % base];
    value /= base;
  } while (value);
  std::ranges::reverse(out);
  return out;
}

std::string integer(uint64_t value, const NumberFormat& format) {
  switch (format.type) {
    case 'x':
      return (format.alternate ? "0x" : "") + in_base(value, 16);
    case 'X': {
      std::string out = in_base(value, 16);
      std::ranges::transform(out, out.begin(), [](char c) { return static_cast<char>(std::toupper(c)); });
      return (format.alternate ? "0X" : "") + out;
    }
    case 'o':
      return (format.alternate ? "0o" : "") + in_base(value, 8);
    case 'b':
      return (format.alternate ? "0b" : "") + in_base(value, 2);
    default:
      return std::to_string(value);
  }
}

}  // namespace

std::string format_magnitude(const Value& value, const NumberFormat& format) {
  if (std::string_view("dxXob").find(format.type) != std::string_view::npos) {
    const int64_t number = value.integer();
    return integer(number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number), format);
  }
  const double number = std::fabs(value.real());
  const bool capitals = format.type == 'E' || format.type == 'F' || format.type == 'G';
  if (std::isnan(number)) return capitals ? "NAN" : "nan";
  if (std::isinf(number)) return capitals ? "INF" : "inf";
  const std::string pattern = std::string(format.alternate ? "%#.*" : "%.*") + format.type;
  const int precision = format.precision < 0 ? 6 : format.precision;
  Budget::spend(100 + 8 * static_cast<size_t>(precision));
  const int size = std::snprintf(nullptr, 0, pattern.c_str(), precision, number);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), pattern.c_str(), precision, number);
  out.pop_back();
  return out;
}

std::string sign_of(const Value& value, char positive) {
  const bool negative =
      value.is(Kind::real) ? std::signbit(value.real()) && !std::isnan(value.real()) : value.integer() < 0;
  if (negative) return "-";
  return positive == '+' || positive == ' ' ? std::string(1, positive) : "";
}

}  // namespace trainer::jinja
