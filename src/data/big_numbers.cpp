#include "data/big_numbers.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t skip_digits(std::string_view text, size_t at) {
  while (at < text.size() && is_digit(text[at])) at++;
  return at;
}

// Returns the index after the string that begins at `at`.
size_t end_of_string(std::string_view text, size_t at) {
  for (at++; at < text.size() && text[at] != '"'; at++) {
    if (text[at] == '\\') at++;
  }
  return std::min(at + 1, text.size());
}

// Returns the index after the number that begins at `at`; `at` itself when it is not a valid JSON number.
size_t end_of_number(std::string_view text, size_t at) {
  const size_t sign = text[at] == '-' ? 1 : 0, whole = skip_digits(text, at + sign);
  const size_t digits = whole - at - sign;
  if (digits == 0 || (digits > 1 && text[at + sign] == '0')) return at;
  size_t end = whole;
  if (end < text.size() && text[end] == '.') {
    end = skip_digits(text, whole + 1);
    if (end == whole + 1) return at;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) exponent++;
    end = skip_digits(text, exponent);
    if (end == exponent) return at;
  }
  return end;
}

bool fits(std::string_view number) {
  const char *begin = number.data(), *end = begin + number.size();
  if (number.find_first_of(".eE") != std::string_view::npos) {
    double value = 0;
    // Python reads a number that is too small as 0; simdjson accepts it too.
    const bool is_large = std::from_chars(begin, end, value).ec == std::errc::result_out_of_range &&
                          number.find("e-") == std::string_view::npos &&
                          number.find("E-") == std::string_view::npos;
    return !is_large;
  }
  int64_t value = 0;
  uint64_t positive = 0;
  return std::from_chars(begin, end, value).ec == std::errc() ||
         std::from_chars(begin, end, positive).ec == std::errc();
}

}  // namespace

std::string with_big_numbers_as_objects(std::string_view json) {
  std::string out;
  for (size_t at = 0; at < json.size();) {
    size_t end = at + 1;
    if (json[at] == '"') {
      end = end_of_string(json, at);
    } else if (json[at] == '-' || is_digit(json[at])) {
      end = end_of_number(json, at);
      if (end > at && !fits(json.substr(at, end - at))) {
        out += concat("{\"\\u0001number\":\"", json.substr(at, end - at), "\"}");
        at = end;
        continue;
      }
      end = std::max(end, skip_digits(json, at + 1));  // skip an invalid number as a whole
    }
    out += json.substr(at, end - at);
    at = end;
  }
  return out;
}

}  // namespace trainer
