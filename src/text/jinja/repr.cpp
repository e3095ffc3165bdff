// str() and repr() of Python.
#include <charconv>
#include <cmath>

#include "trainer/base/strings.h"

#include "text/jinja/text_tests.h"
#include "text/jinja/value.h"
#include "text/unicode/utf8.h"

namespace trainer::jinja {
namespace {

std::string escaped(char32_t c) {
  char buffer[12];
  const char* format = c <= 0xff ? "\\x%02x" : c <= 0xffff ? "\\u%04x" : "\\U%08x";
  std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(c));
  return buffer;
}

Text repr_of_text(const Text& text) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  const std::string border(1, quote);
  Text out(text.safe() ? "Markup(" + border : border);
  out.append(text.marked(false).mapped([&](const Text& character) {
    size_t offset = 0;
    const char32_t c = code_points(character.bytes())[offset];
    if (c == static_cast<char32_t>(quote) || c == '\\') return Text("\\" + character.bytes());
    if (c == '\n') return Text("\\n");
    if (c == '\r') return Text("\\r");
    if (c == '\t') return Text("\\t");
    return is_printable(c) ? character : Text(escaped(c));
  }));
  return out.append(border).append(text.safe() ? ")" : "");
}

Text repr_of_items(const Value& value) {
  const ValueDepth depth;
  const List& items = value.items();
  Text out(value.is(Kind::list) ? "[" : "(");
  for (size_t i = 0; i < items.size(); i++) {
    if (i) out.append(", ");
    out.append(repr(items[i]));
  }
  if (value.is(Kind::list)) return out.append("]");
  return out.append(items.size() == 1 ? ",)" : ")");
}

Text repr_of_dict(const Dict& dict) {
  const ValueDepth depth;
  Text out("{");
  for (const auto& [key, value] : dict.items()) {
    if (out.bytes().size() > 1) out.append(", ");
    out.append(repr(key)).append(": ").append(repr(value));
  }
  return out.append("}");
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string text(buffer, end);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;  // two digits of exponent at least, as in Python
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const std::string sign = text[0] == '-' ? "-" : "";
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

Text repr(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return Text("Undefined");
    case Kind::none:
      return Text("None");
    case Kind::boolean:
      return Text(value.boolean() ? "True" : "False");
    case Kind::integer:
      return Text(std::to_string(value.integer()));
    case Kind::real:
      return Text(float_repr(value.real()));
    case Kind::text:
      return repr_of_text(value.text());
    case Kind::list:
    case Kind::tuple:
      return repr_of_items(value);
    case Kind::dict:
      return repr_of_dict(value.dict());
    case Kind::object:
      return Text(value.object().repr());
  }
  return Text();
}

Text to_text(const Value& value) {
  if (value.is(Kind::text)) return value.text();
  if (value.is_undefined()) return Text();
  return repr(value);
}

}  // namespace trainer::jinja
