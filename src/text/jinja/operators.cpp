#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer/base/strings.h"

#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/split.h"

namespace trainer::jinja {
namespace {

constexpr size_t kLongestRepetition = 100'000'000;

void require_defined(const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) throw RenderError(value->why_undefined());
  }
}

[[noreturn]] void refuse(const char* sign, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_object() && value->type_name().starts_with("dict_") && sign == std::string("-"))
      throw Unsupported("a set, which - of the keys of a dict gives");
  }
  require_defined(a, b);
  throw RenderError(
      concat("unsupported operand type(s) for ", sign, ": '", a.type_name(), "' and '", b.type_name(), "'"));
}

bool numbers(const Value& a, const Value& b) { return a.is_number() && b.is_number(); }
bool integers(const Value& a, const Value& b) { return a.is_integral() && b.is_integral(); }

[[noreturn]] void too_large() { throw Unsupported("an integer beyond 64 bits"); }

Value concatenated(const Value& a, const Value& b) {
  List items;
  items.reserve(a.items().size() + b.items().size());
  items.insert(items.end(), a.items().begin(), a.items().end());
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::list) ? Value(std::move(items)) : Value::tuple(std::move(items));
}

Value repeated(const Value& value, int64_t count) {
  const size_t size = value.is(Kind::text) ? value.text().bytes().size() : value.items().size();
  const size_t times = count > 0 && size > 0 ? static_cast<size_t>(count) : 0;
  if (size && times > kLongestRepetition / size) throw RenderError("the repetition is too long");
  if (value.is(Kind::text)) {
    Text out("", value.text().safe());
    for (size_t i = 0; i < times; i++) out.append(value.text());
    return Value(std::move(out));
  }
  List items;
  items.reserve(times * size);
  for (size_t i = 0; i < times; i++) items.insert(items.end(), value.items().begin(), value.items().end());
  return value.is(Kind::list) ? Value(std::move(items)) : Value::tuple(std::move(items));
}

bool repeatable(const Value& value) {
  return value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::tuple);
}

Value integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; i++) {
    if (base == 1 || base == 0) return Value(base);
    if (base == -1) return Value(exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
    if (__builtin_mul_overflow(result, base, &result)) too_large();
  }
  return Value(result);
}

}  // namespace

Value add(const Value& a, const Value& b) {
  Budget::spend(2);
  if (integers(a, b)) {
    int64_t sum;
    if (__builtin_add_overflow(a.integer(), b.integer(), &sum)) too_large();
    return Value(sum);
  }
  if (numbers(a, b)) return Value(a.real() + b.real());
  if (a.kind() == b.kind()) {
    if (a.is(Kind::text)) {
      const bool safe = a.text().safe() || b.text().safe();
      const auto part = [&](const Text& text) { return safe && !text.safe() ? escape_html(text) : text; };
      return Value(part(a.text()).append(part(b.text())).marked(safe));
    }
    if (a.is(Kind::list) || a.is(Kind::tuple)) return concatenated(a, b);
  }
  require_defined(a, b);
  if (a.is(Kind::text))
    throw RenderError(concat("can only concatenate str (not \"", b.type_name(), "\") to str"));
  refuse("+", a, b);
}

Value subtract(const Value& a, const Value& b) {
  if (integers(a, b)) {
    int64_t difference;
    if (__builtin_sub_overflow(a.integer(), b.integer(), &difference)) too_large();
    return Value(difference);
  }
  if (numbers(a, b)) return Value(a.real() - b.real());
  refuse("-", a, b);
}

Value multiply(const Value& a, const Value& b) {
  if (integers(a, b)) {
    int64_t product;
    if (__builtin_mul_overflow(a.integer(), b.integer(), &product)) too_large();
    return Value(product);
  }
  if (numbers(a, b)) return Value(a.real() * b.real());
  if (repeatable(a) && b.is_integral()) return repeated(a, b.integer());
  if (a.is_integral() && repeatable(b)) return repeated(b, a.integer());
  refuse("*", a, b);
}

Value divide(const Value& a, const Value& b) {
  if (!numbers(a, b)) refuse("/", a, b);
  if (b.real() == 0) throw RenderError("division by zero");
  return Value(a.real() / b.real());
}

Value floor_divide(const Value& a, const Value& b) {
  if (!numbers(a, b)) refuse("//", a, b);
  if (b.real() == 0) throw RenderError("integer division or modulo by zero");
  if (integers(a, b)) {
    const int64_t x = a.integer(), y = b.integer();
    if (y == -1 && x == std::numeric_limits<int64_t>::min()) too_large();
    return Value(x / y - (x % y != 0 && (x < 0) != (y < 0)));
  }
  const double remainder = modulo(a, b).real();
  const double quotient = (a.real() - remainder) / b.real();
  if (quotient == 0) return Value(std::copysign(0.0, a.real() / b.real()));
  const double floor = std::floor(quotient);
  return Value(quotient - floor > 0.5 ? floor + 1 : floor);
}

Value modulo(const Value& a, const Value& b) {
  if (a.is(Kind::text)) return Value(printf_format(a.text(), b));
  if (!numbers(a, b)) refuse("%", a, b);
  if (b.real() == 0) throw RenderError("integer division or modulo by zero");
  if (integers(a, b)) {
    const int64_t x = a.integer(), y = b.integer();
    if (y == -1) return Value(int64_t{0});
    const int64_t rest = x % y;
    return Value(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
  }
  const double rest = std::fmod(a.real(), b.real());
  if (rest == 0) return Value(std::copysign(0.0, b.real()));
  return Value((rest < 0) != (b.real() < 0) ? rest + b.real() : rest);
}

Value power(const Value& a, const Value& b) {
  if (!numbers(a, b)) refuse("** or pow()", a, b);
  if (integers(a, b) && b.integer() >= 0) return integer_power(a.integer(), b.integer());
  if (a.real() == 0 && b.real() < 0) throw RenderError("0.0 cannot be raised to a negative power");
  if (a.real() < 0 && b.real() != std::floor(b.real())) throw Unsupported("a complex number");
  const double result = std::pow(a.real(), b.real());
  if (std::isinf(result) && !std::isinf(a.real()) && !std::isinf(b.real()))
    throw RenderError("(34, 'Numerical result out of range')");
  return Value(result);
}

Value negate(const Value& a) {
  if (a.is_undefined()) throw RenderError(a.why_undefined());
  if (a.is_integral()) return subtract(Value(int64_t{0}), a);
  if (a.is(Kind::real)) return Value(-a.real());
  throw RenderError(concat("bad operand type for unary -: '", a.type_name(), "'"));
}

Value plus(const Value& a) {
  if (a.is_undefined()) throw RenderError(a.why_undefined());
  if (a.is_integral()) return Value(a.integer());
  if (a.is(Kind::real)) return a;
  throw RenderError(concat("bad operand type for unary +: '", a.type_name(), "'"));
}

bool contains(const Value& container, const Value& item) {
  if (container.is(Kind::text)) {
    if (!item.is(Kind::text)) {
      throw RenderError(concat("'in <string>' requires string as left operand, not ", item.type_name()));
    }
    return find_bytes(container.text().bytes(), item.text().bytes(), 0) != std::string::npos;
  }
  if (container.is(Kind::dict) || (container.is_object() && container.type_name() == "dict_keys"))
    require_hashable(item);
  if (container.is(Kind::dict)) return container.dict().find(item) != nullptr;
  if (container.is_number() || container.is(Kind::none))
    throw RenderError(concat("argument of type '", container.type_name(), "' is not iterable"));
  const auto is_item = [&](const Value& value) { return equal(value, item); };
  if (container.is(Kind::list) || container.is(Kind::tuple))
    return std::ranges::any_of(container.items(), is_item);
  return std::ranges::any_of(iterate(container), is_item);
}

List iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return {};
    case Kind::list:
    case Kind::tuple:
      return value.items();
    case Kind::text: {
      List out;
      const CountedVector<size_t> at = value.text().borders();
      for (size_t i = 0; i + 1 < at.size(); i++)
        out.push_back(Value(value.text().slice(at[i], at[i + 1]).marked(false)));
      return out;
    }
    case Kind::dict: {
      List out;
      for (const auto& [key, unused] : value.dict().items()) out.push_back(key);
      return out;
    }
    case Kind::object:
      if (auto items = value.object().iterate()) return *std::move(items);
      [[fallthrough]];
    default:
      throw RenderError(concat("'", value.type_name(), "' object is not iterable"));
  }
}

int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::list:
    case Kind::tuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::text:
      return static_cast<int64_t>(value.text().length());
    case Kind::dict:
      return static_cast<int64_t>(value.dict().items().size());
    case Kind::object:
      if (const auto length = value.object().length()) return *length;
      [[fallthrough]];
    default:
      throw RenderError(concat("object of type '", value.type_name(), "' has no len()"));
  }
}

}  // namespace trainer::jinja
