#include "text/jinja/string_literal.h"

#include <charconv>

#include "trainer/base/strings.h"

#include "text/jinja/lexer.h"
#include "text/unicode/utf8.h"

namespace trainer::jinja {
namespace {

// Reads `digits` digits of hexadecimal at `at`.
char32_t hexadecimal(const std::string& text, size_t at, size_t digits, int line) {
  uint32_t value = 0;
  const char* begin = text.data() + at;
  const char* end = text.data() + std::min(text.size(), at + digits);
  const auto result = std::from_chars(begin, end, value, 16);
  if (result.ptr != text.data() + at + digits || value > 0x10ffff)
    throw SyntaxError(concat("a damaged escape in the string '", text, "'"), line);
  if (value >= 0xd800 && value <= 0xdfff)
    throw SyntaxError(concat("a surrogate, which is no character, in the string '", text, "'"), line);
  return value;
}

}  // namespace

std::string unescape_literal(const std::string& text, int line) {
  constexpr std::string_view names = "abfnrtv\\'\"", values = "\a\b\f\n\r\t\v\\'\"";
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    if (const size_t simple = names.find(c); simple != std::string_view::npos) {
      out += values[simple];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      append_code_point(out, hexadecimal(text, i + 1, digits, line));
      i += digits;
    } else if (c >= '0' && c <= '7') {
      char32_t value = 0;
      size_t count = 0;
      for (; count < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7'; count++, i++)
        value = value * 8 + static_cast<char32_t>(text[i] - '0');
      i--;
      append_code_point(out, value);
    } else if (c == 'N') {
      throw SyntaxError("named characters, \\N{...}, are not supported", line);
    } else if (c != '\n') {  // a line break after a backslash is not part of the string
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace trainer::jinja
