// format % values
#include "text/jinja/printf_format.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "text/jinja/format.h"
#include "text/jinja/split.h"
#include "text/jinja/text.h"

namespace trainer::jinja {
namespace {

constexpr int64_t kWidestConversion = 10'000;

class Printf {
 public:
  Printf(const Text& format, const Value& values) : format_(format), values_(values) {}

  Text run() {
    Text out("", format_.safe());
    const std::string& bytes = format_.bytes();
    while (at_ < bytes.size()) {
      const size_t percent = std::min(bytes.find('%', at_), bytes.size());
      out.append(format_.slice(at_, percent));
      at_ = percent + 1;
      if (percent < bytes.size()) out.append(conversion());
    }
    // As in Python, a value with subscripts counts as a mapping, and not all of a mapping must be used.
    const bool may_be_left = values_.is(Kind::dict) || values_.is(Kind::list) || values_.is_undefined();
    if (!mapped_ && !may_be_left && next_ < count())
      throw RenderError("not all arguments converted during string formatting");
    return out;
  }

 private:
  char take() {
    if (at_ >= format_.bytes().size()) throw RenderError("incomplete format");
    return format_.bytes()[at_++];
  }
  bool skip(char c) {
    if (at_ >= format_.bytes().size() || format_.bytes()[at_] != c) return false;
    at_++;
    return true;
  }
  size_t count() const { return values_.is(Kind::tuple) ? values_.items().size() : 1; }

  Value next_value() {
    if (next_ >= count()) throw RenderError("not enough arguments for format string");
    const size_t i = next_++;
    return values_.is(Kind::tuple) ? values_.items()[i] : values_;
  }

  Value keyed_value() {
    const size_t end = format_.bytes().find(')', at_);
    if (end == std::string::npos) throw RenderError("incomplete format key");
    const Text key = format_.slice(at_, end).marked(false);
    at_ = end + 1;
    if (!values_.is(Kind::dict)) throw RenderError("format requires a mapping");
    const Value* found = values_.dict().find(Value(key));
    if (!found) throw RenderError(concat("KeyError: ", repr(Value(key)).bytes()));
    mapped_ = true;
    return *found;
  }

  int64_t number() {
    if (skip('*')) {
      const Value value = next_value();
      if (!value.is_integral()) throw RenderError("* wants int");
      return value.integer();
    }
    int64_t out = 0;
    while (at_ < format_.bytes().size() && format_.bytes()[at_] >= '0' && format_.bytes()[at_] <= '9')
      out = std::min(out * 10 + (take() - '0'), kWidestConversion + 1);
    return out;
  }

  Text conversion() {
    std::optional<Value> value;
    if (skip('(')) value = keyed_value();
    bool left = false, zero = false;
    char sign = '\0';
    NumberFormat style;
    while (at_ < format_.bytes().size() &&
           std::string_view("-+ #0").find(format_.bytes()[at_]) != std::string_view::npos) {
      const char flag = take();
      if (flag == '-') left = true;
      if (flag == '0') zero = true;
      if (flag == '#') style.alternate = true;
      if (flag == '+' || (flag == ' ' && sign != '+')) sign = flag;
    }
    int64_t width = number();
    if (width > kWidestConversion || width < -kWidestConversion) throw RenderError("the width is too large");
    if (width < 0) {
      left = true;
      width = -width;
    }
    int64_t precision = skip('.') ? std::max<int64_t>(number(), 0) : -1;
    if (precision > kWidestConversion) throw RenderError("the precision is too large");
    while (skip('l') || skip('h') || skip('L')) continue;
    const char type = take();
    if (type == '%') return Text("%");
    if (!value) value = next_value();
    if (type == 's' || type == 'r' || type == 'c') {
      Text text = type == 'c' ? character(*value) : type == 's' ? to_text(*value) : repr(*value);
      if (type != 'c' && precision >= 0 && static_cast<size_t>(precision) < text.length())
        text = text.slice(0, text.offset(static_cast<size_t>(precision)));
      return padded(text, width, Text(" "), left ? '<' : '>');
    }
    return number_text(*value, type, style, precision, sign, width, left, zero);
  }

  static Text character(const Value& value) {
    if (value.is(Kind::text) && value.text().length() == 1) return value.text();
    if (!value.is_integral()) throw RenderError("%c requires int or char");
    if (value.integer() < 0 || value.integer() > 0x10ffff) throw RenderError("%c arg not in range(0x110000)");
    return Text(utf8(static_cast<char32_t>(value.integer())));
  }

  static Text number_text(const Value& given, char type, NumberFormat style, int64_t precision, char sign,
                          int64_t width, bool left, bool zero) {
    Value value = given;
    if (value.is_undefined()) throw RenderError(value.why_undefined());
    if (!value.is_number()) {
      if (std::string_view("diuoxXeEfFgG").find(type) == std::string_view::npos) unknown(type);
      throw RenderError(concat("%", type, " format: a number is required, not ", value.type_name()));
    }
    if (type == 'i' || type == 'u') type = 'd';
    const bool integral = std::string_view("doxX").find(type) != std::string_view::npos;
    if (type == 'd' && value.is(Kind::real)) {
      if (!std::isfinite(value.real())) throw RenderError("cannot convert float infinity or NaN to integer");
      if (std::fabs(value.real()) >= 9.2e18) throw Unsupported("an integer beyond 64 bits");
      value = Value(static_cast<int64_t>(value.real()));
    }
    if (!integral && std::string_view("eEfFgG").find(type) == std::string_view::npos) unknown(type);
    if (integral && !value.is_integral())
      throw RenderError(concat("%", type, " format: an integer is required, not ", value.type_name()));
    style.type = type;
    style.precision = static_cast<int>(precision);
    std::string digits = format_magnitude(value, style);
    std::string before = sign_of(value, sign);
    if (integral && style.alternate && type != 'd') {
      before += digits.substr(0, 2);
      digits = digits.substr(2);
    }
    if (integral && precision > static_cast<int64_t>(digits.size()))
      digits.insert(0, static_cast<size_t>(precision) - digits.size(), '0');
    if (zero && !left)
      return Text(before).append(
          padded(Text(digits), width - static_cast<int64_t>(before.size()), Text("0"), '>'));
    return padded(Text(before + digits), width, Text(" "), left ? '<' : '>');
  }

  [[noreturn]] static void unknown(char type) {
    if (type == 'a') throw Unsupported("the conversion %a");
    throw RenderError(concat("unsupported format character '", type, "'"));
  }

  const Text& format_;
  const Value& values_;
  size_t at_ = 0, next_ = 0;
  bool mapped_ = false;
};

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

Text printf_format(const Text& format, const Value& values) {
  if (format.safe()) throw Unsupported("% of a safe string");
  return Printf(format, values).run();
}

Text escape_html(const Text& text) {
  return text
      .replaced([](char32_t c) {
        if (c == '&') return "&amp;";
        if (c == '<') return "&lt;";
        if (c == '>') return "&gt;";
        if (c == '\'') return "&#39;";
        return c == '"' ? "&#34;" : "";
      })
      .marked(true);
}

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
