// abs, int, float, round.
#include <charconv>
#include <cmath>
#include <map>

#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace trainer::jinja {
namespace {

// Digits as Python reads them: without blanks around and single underscores between digits. None: no number.
std::optional<std::string> plain_digits(const Text& text) {
  const std::string stripped = text.strip(nullptr, true, true).bytes();
  Budget::spend(32 + 4 * stripped.size());
  for (size_t at = 0; at < stripped.size();) {
    const char32_t c = next_code_point(stripped, at);
    if (c >= 0x80 && is_decimal(Text(utf8(c))))
      throw Unsupported(concat("the digits of '", one_line(stripped, 40), "'"));
  }
  std::string out;
  for (size_t i = 0; i < stripped.size(); i++) {
    const auto alnum = [&](size_t at) {
      return at < stripped.size() && std::isalnum(static_cast<unsigned char>(stripped[at]));
    };
    if (static_cast<unsigned char>(stripped[i]) >= 0x80) return std::nullopt;
    if (stripped[i] != '_') {
      out += stripped[i];
    } else if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<int64_t> parse_integer(const Text& text, int64_t base) {
  auto digits = plain_digits(text);
  if (!digits || digits->empty()) return std::nullopt;
  if (base < 2 || base > 36) throw Unsupported(concat("numbers to the base of ", base));
  const bool negative = digits->starts_with('-');
  if (negative || digits->starts_with('+')) digits->erase(0, 1);
  for (const auto& [letter, of] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if (base == of && digits->size() > 2 && (*digits)[0] == '0' && std::tolower((*digits)[1]) == letter)
      digits->erase(0, 2);
  }
  if (digits->empty() || !std::isalnum(static_cast<unsigned char>((*digits)[0]))) return std::nullopt;
  if (negative) digits->insert(0, 1, '-');
  int64_t value = 0;
  const char* end = digits->data() + digits->size();
  const auto result = std::from_chars(digits->data(), end, value, static_cast<int>(base));
  if (result.ptr != end) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) throw Unsupported("an integer beyond 64 bits");
  return value;
}

std::optional<double> parse_float(const Text& text) {
  auto digits = plain_digits(text);
  if (!digits) return std::nullopt;
  const bool negative = digits->starts_with('-');
  if (negative || digits->starts_with('+')) digits->erase(0, 1);
  if (digits->empty() || digits->starts_with('-') || digits->find('(') != std::string::npos)
    return std::nullopt;
  double value = 0;
  const char* end = digits->data() + digits->size();
  const auto result = std::from_chars(digits->data(), end, value);
  if (result.ptr != end) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) value = std::strtod(digits->c_str(), nullptr);
  return negative ? -value : value;
}

int64_t truncated(double value) {
  if (std::isinf(value)) throw RenderError("cannot convert float infinity to integer");
  if (std::fabs(value) >= 9.2e18) throw Unsupported("an integer beyond 64 bits");
  return static_cast<int64_t>(value);
}

Value int_filter(const Value& value, const Arguments& arguments) {
  const Bound given("int", arguments, {"default", "base"});
  const Value fallback = given[0] ? *given[0] : Value(int64_t{0});
  if (value.is_undefined()) throw RenderError(value.why_undefined());
  if (value.is_integral()) return Value(value.integer());
  if (value.is(Kind::real)) return std::isnan(value.real()) ? fallback : Value(truncated(value.real()));
  if (!value.is(Kind::text)) return fallback;
  if (const auto number = parse_integer(value.text(), given.integer(1, 10))) return Value(*number);
  const auto real = parse_float(value.text());
  return real && std::isfinite(*real) ? Value(truncated(*real)) : fallback;
}

Value float_filter(const Value& value, const Arguments& arguments) {
  const Bound given("float", arguments, {"default"});
  const Value fallback = given[0] ? *given[0] : Value(0.0);
  if (value.is_undefined()) throw RenderError(value.why_undefined());
  if (value.is_number()) return Value(value.real());
  if (!value.is(Kind::text)) return fallback;
  const auto real = parse_float(value.text());
  return real ? Value(*real) : fallback;
}

Value abs_filter(const Value& value, const Arguments& arguments) {
  Bound("abs", arguments, {});
  if (value.is_undefined()) throw RenderError(value.why_undefined());
  if (value.is(Kind::real)) return Value(std::fabs(value.real()));
  if (value.is_integral()) return value.integer() < 0 ? negate(value) : Value(value.integer());
  throw RenderError(concat("bad operand type for abs(): '", value.type_name(), "'"));
}

Value round_filter(const Value& value, const Arguments& arguments) {
  const Bound given("round", arguments, {"precision", "method"});
  const int64_t precision = given.integer(0, 0);
  const std::string method = given.text(1, "common").bytes();
  if (method != "common" && method != "ceil" && method != "floor")
    throw RenderError("method must be common, ceil or floor");
  if (value.is_undefined()) throw RenderError(value.why_undefined());
  if (!value.is_number())
    throw RenderError(concat("type ", value.type_name(), " doesn't define __round__ method"));
  if (precision < 0) throw Unsupported("rounding to a negative number of digits");
  if (method == "common") {
    if (value.is_integral()) return Value(value.integer());
    if (!std::isfinite(value.real()) || precision > 300) return value;
    // The C library rounds the exact value to the nearest and ties to even, as Python does.
    Budget::spend(100 + 2 * static_cast<size_t>(precision));
    char buffer[700];
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), value.real());
    return Value(std::strtod(buffer, nullptr));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision)), scaled = value.real() * scale;
  if (!std::isfinite(scaled)) throw RenderError("cannot convert float infinity to integer");
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale + 0.0);
}

}  // namespace

Filter find_number_filter(const std::string& name) {
  static const std::map<std::string, Filter> filters = {
      {"abs", abs_filter}, {"float", float_filter}, {"int", int_filter}, {"round", round_filter}};
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace trainer::jinja
