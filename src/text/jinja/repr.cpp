// str() and repr() of Python.
#include <charconv>
#include <cmath>

#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace trainer::jinja {
namespace {

std::string escaped(char32_t c) {
  char buffer[12];
  const char* format = c <= 0xff ? "\\x%02x" : c <= 0xffff ? "\\u%04x" : "\\U%08x";
  std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(c));
  return buffer;
}

void write_repr(const Value& value, Text& out);

void write_text(const Text& text, Text& out) {
  Budget::spend_bytes(text.bytes().size());
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  if (text.safe()) out.append("Markup(");
  out.append(std::string_view(&quote, 1));
  out.append(text.replaced([&](char32_t c) -> std::string {
    if (c == static_cast<char32_t>(quote) || c == '\\') return "\\" + utf8(c);
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    return is_printable(c) ? "" : escaped(c);
  }));
  out.append(std::string_view(&quote, 1));
  if (text.safe()) out.append(")");
}

void write_items(const Value& value, Text& out) {
  const ValueDepth depth;
  const List& items = value.items();
  out.append(value.is(Kind::list) ? "[" : "(");
  for (size_t i = 0; i < items.size(); i++) {
    if (i) out.append(", ");
    write_repr(items[i], out);
  }
  out.append(value.is(Kind::list) ? "]" : items.size() == 1 ? ",)" : ")");
}

void write_dict(const Dict& dict, Text& out) {
  const ValueDepth depth;
  out.append("{");
  for (bool first = true; const auto& [key, value] : dict.items()) {
    if (!first) out.append(", ");
    first = false;
    write_repr(key, out);
    out.append(": ");
    write_repr(value, out);
  }
  out.append("}");
}

void write_repr(const Value& value, Text& out) {
  Budget::spend(8);
  switch (value.kind()) {
    case Kind::undefined:
      out.append("Undefined");
      break;
    case Kind::none:
      out.append("None");
      break;
    case Kind::boolean:
      out.append(value.boolean() ? "True" : "False");
      break;
    case Kind::integer:
      out.append(std::to_string(value.integer()));
      break;
    case Kind::real:
      Budget::spend(40);
      out.append(float_repr(value.real()));
      break;
    case Kind::text:
      write_text(value.text(), out);
      break;
    case Kind::list:
    case Kind::tuple:
      write_items(value, out);
      break;
    case Kind::dict:
      write_dict(value.dict(), out);
      break;
    case Kind::object:
      out.append(value.object().repr());
      break;
  }
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
  Text out;
  write_repr(value, out);
  return out;
}

Text to_text(const Value& value) {
  if (value.is(Kind::text)) return value.text();
  if (value.is_undefined()) return Text();
  return repr(value);
}

}  // namespace trainer::jinja
