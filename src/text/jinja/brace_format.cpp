// str.format()
#include <algorithm>

#include "trainer/base/strings.h"

#include "text/jinja/format.h"
#include "text/jinja/operators.h"
#include "text/jinja/printf_format.h"
#include "text/jinja/split.h"

namespace trainer::jinja {
namespace {

constexpr int64_t kWidestField = 10'000;

struct Spec {
  Text fill = Text(" ");
  char align = '\0', sign = '\0', type = '\0';
  bool alternate = false, zero = false;
  char grouping = '\0';
  int64_t width = 0, precision = -1;
};

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

Spec parse_spec(const Text& text) {
  Spec spec;
  const std::string& bytes = text.bytes();
  const CountedVector<size_t> borders = text.borders();
  size_t at = 0;
  if (borders.size() > 2 && is_align(bytes[borders[1]])) {
    spec.fill = text.slice(0, borders[1]);
    at = borders[1];
  }
  const auto skip = [&](std::string_view any) -> char {
    return at < bytes.size() && any.find(bytes[at]) != std::string_view::npos ? bytes[at++] : '\0';
  };
  const auto number = [&] {
    int64_t out = 0;
    while (at < bytes.size() && bytes[at] >= '0' && bytes[at] <= '9')
      out = std::min(out * 10 + (bytes[at++] - '0'), kWidestField + 1);
    if (out > kWidestField) throw RenderError("Too many decimal digits in format string");
    return out;
  };
  spec.align = skip("<>^=");
  spec.sign = skip("+- ");
  spec.alternate = skip("#") != '\0';
  if (skip("0")) {
    spec.zero = true;
    if (!spec.align) {
      spec.fill = Text("0");
      spec.align = '=';
    }
  }
  spec.width = number();
  spec.grouping = skip(",_");
  if (skip(".")) spec.precision = number();
  if (at < bytes.size()) spec.type = bytes[at++];
  if (at != bytes.size()) throw RenderError(concat("Invalid format specifier '", bytes, "'"));
  return spec;
}

void group_digits(std::string& digits, char separator) {
  size_t end = 0;
  while (end < digits.size() && digits[end] >= '0' && digits[end] <= '9') end++;
  for (size_t at = end; at > 3;) digits.insert(at -= 3, 1, separator);
}

Text format_number(const Value& value, Spec spec) {
  if (spec.type == 'n' || spec.type == 'c') throw Unsupported(concat("the format '", spec.type, "'"));
  const bool general = spec.type == '\0' && value.is(Kind::real);
  char type = spec.type ? spec.type : value.is(Kind::real) ? 'g' : 'd';
  const bool integral = std::string_view("bdoxX").find(type) != std::string_view::npos;
  const bool known = integral || std::string_view("eEfFgG%").find(type) != std::string_view::npos;
  if (!known || (integral && !value.is_integral())) {
    throw RenderError(
        concat("Unknown format code '", type, "' for object of type '", value.type_name(), "'"));
  }
  if (integral && spec.precision >= 0) throw RenderError("Precision not allowed in integer format specifier");
  if (general && (spec.precision >= 0 || spec.alternate))
    throw Unsupported("format() of a float with a precision and no type");
  if (spec.grouping && (integral && type != 'd')) throw Unsupported("groups of digits that are not decimal");
  std::string digits;
  if (general) {
    digits = float_repr(value.real());
    if (digits.starts_with('-')) digits.erase(0, 1);
  } else if (type == '%') {
    digits =
        format_magnitude(Value(value.real() * 100), {'f', static_cast<int>(spec.precision), spec.alternate}) +
        "%";
  } else {
    digits = format_magnitude(value, {type, static_cast<int>(spec.precision), spec.alternate});
  }
  std::string before = sign_of(value, spec.sign);
  if (integral && spec.alternate && type != 'd') {
    before += digits.substr(0, 2);
    digits.erase(0, 2);
  }
  if (spec.grouping) {
    if (spec.align == '=' && spec.width > 0)
      throw Unsupported("groups of digits with padding inside the number");
    group_digits(digits, spec.grouping);
  }
  if (spec.align == '=')
    return Text(before).append(
        padded(Text(digits), spec.width - static_cast<int64_t>(before.size()), spec.fill, '>'));
  return padded(Text(before + digits), spec.width, spec.fill, spec.align ? spec.align : '>');
}

Text format_text(const Text& text, const Spec& spec) {
  if (spec.type && spec.type != 's')
    throw RenderError(concat("Unknown format code '", spec.type, "' for object of type 'str'"));
  if (spec.sign || spec.alternate || spec.grouping || (spec.align == '=' && !spec.zero))
    throw RenderError("this format specifier is not allowed for a string");
  Text kept = text;
  if (spec.precision >= 0 && static_cast<size_t>(spec.precision) < text.length())
    kept = text.slice(0, text.offset(static_cast<size_t>(spec.precision)));
  return padded(kept, spec.width, spec.fill, spec.align && spec.align != '=' ? spec.align : '<');
}

Text format_value(const Value& value, const Text& spec) {
  if (spec.empty()) return to_text(value);
  if (value.is(Kind::text)) return format_text(value.text(), parse_spec(spec));
  if (value.is(Kind::boolean)) throw Unsupported("format() of a boolean with a format specifier");
  if (value.is_number()) return format_number(value, parse_spec(spec));
  throw RenderError(concat("unsupported format string passed to ", value.type_name(), ".__format__"));
}

class Formatter {
 public:
  explicit Formatter(const Arguments& arguments) : arguments_(arguments) {}

  Text run(const Text& format, int depth) {
    if (depth > 2) throw RenderError("Max string recursion exceeded");
    const std::string& bytes = format.bytes();
    Text out;
    for (size_t at = 0; at < bytes.size();) {
      const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      out.append(format.slice(at, brace));
      if (brace == bytes.size()) break;
      if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
        out.append(format.slice(brace, brace + 1));
        at = brace + 2;
        continue;
      }
      if (bytes[brace] == '}') throw RenderError("Single '}' encountered in format string");
      const size_t end = field_end(bytes, brace + 1);
      out.append(field(format.slice(brace + 1, end), depth));
      at = end + 1;
    }
    return out;
  }

 private:
  static size_t field_end(const std::string& bytes, size_t at) {
    for (int open = 1; at < bytes.size(); at++) {
      if (bytes[at] == '{') open++;
      if (bytes[at] == '}' && --open == 0) return at;
    }
    throw RenderError("expected '}' before end of string");
  }

  Text field(const Text& text, int depth) {
    Budget::spend(16);
    const std::string& bytes = text.bytes();
    const size_t name_end = std::min(bytes.find_first_of("!:"), bytes.size());
    const Value value = named_value(bytes.substr(0, name_end));
    size_t at = name_end;
    char conversion = '\0';
    if (at < bytes.size() && bytes[at] == '!') {
      if (at + 1 >= bytes.size()) throw RenderError("end of string while looking for conversion specifier");
      conversion = bytes[at + 1];
      at += 2;
    }
    Text spec;
    if (at < bytes.size()) {
      if (bytes[at] != ':') throw RenderError("expected ':' after conversion specifier");
      spec = run(text.slice(at + 1, bytes.size()), depth + 1);
    }
    if (conversion == 'r') return format_value(Value(repr(value)), spec);
    if (conversion == 's') return format_value(Value(to_text(value)), spec);
    if (conversion) throw Unsupported(concat("the conversion !", conversion, " of format()"));
    return format_value(value, spec);
  }

  Value named_value(const std::string& path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, end));
    for (size_t at = end; at < path.size();) {
      if (path[at] == '.') {
        const size_t stop = std::min(path.find_first_of(".[", at + 1), path.size());
        value = get_attribute(value, path.substr(at + 1, stop - at - 1));
        at = stop;
      } else {
        const size_t stop = path.find(']', at);
        if (stop == std::string::npos) throw RenderError("Missing ']' in format string");
        value = get_item(value, index(path.substr(at + 1, stop - at - 1)));
        at = stop + 1;
        if (at < path.size() && path[at] != '.' && path[at] != '[')
          throw RenderError("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static bool all_digits(const std::string& text) {
    return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
  }
  static Value index(const std::string& text) {
    return all_digits(text) ? Value(static_cast<int64_t>(std::stol(text))) : text_value(text);
  }

  Value argument(const std::string& name) {
    if (name.empty() || all_digits(name)) {
      if (numbered_ && *numbered_ == name.empty())
        throw RenderError("cannot switch between manual field specification and automatic field numbering");
      numbered_ = !name.empty();
      const size_t i = name.empty() ? next_++ : static_cast<size_t>(std::stol(name));
      if (i >= arguments_.positional.size())
        throw RenderError(concat("Replacement index ", i, " out of range for positional args tuple"));
      return arguments_.positional[i];
    }
    Budget::spend(arguments_.named.size());
    const auto found = std::ranges::find(arguments_.named, name, &std::pair<std::string, Value>::first);
    if (found == arguments_.named.end()) throw RenderError(concat("KeyError: '", name, "'"));
    return found->second;
  }

  const Arguments& arguments_;
  std::optional<bool> numbered_;
  size_t next_ = 0;
};

}  // namespace

Text brace_format(const Text& format, const Arguments& arguments) {
  return Formatter(arguments).run(format, 1);
}

}  // namespace trainer::jinja
