#include "text/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer/base/strings.h"

#include "text/unicode/utf8.h"

namespace trainer::jinja {

Value from_json(const nlohmann::ordered_json& json, Origin origin) {
  using Type = nlohmann::ordered_json::value_t;
  const ValueDepth depth;
  switch (json.type()) {
    case Type::null:
      return Value();
    case Type::boolean:
      return Value(json.get<bool>());
    case Type::number_integer:
      return Value(json.get<int64_t>());
    case Type::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        throw Unsupported(concat("the number ", json.dump(), ", which is beyond 64 bits,"));
      }
      return Value(json.get<int64_t>());
    case Type::number_float:
      return Value(json.get<double>());
    case Type::string:
      return Value(Text(json.get_ref<const std::string&>(), origin));
    case Type::array: {
      List items;
      for (const auto& item : json) items.push_back(from_json(item, origin));
      return Value(std::move(items));
    }
    case Type::object: {
      Dict dict;
      for (const auto& [key, value] : json.items()) dict.set(text_value(key), from_json(value, origin));
      return Value(std::move(dict));
    }
    default:
      throw Unsupported("binary data");
  }
}

namespace {

std::string unicode_escape(unsigned unit) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, "\\u%04x", unit);
  return buffer;
}

Text escape_character(const Text& character, bool ensure_ascii) {
  const char32_t c = code_points(character.bytes())[0];
  switch (c) {
    case '"':
      return Text("\\\"");
    case '\\':
      return Text("\\\\");
    case '\n':
      return Text("\\n");
    case '\r':
      return Text("\\r");
    case '\t':
      return Text("\\t");
    case '\f':
      return Text("\\f");
    case '\b':
      return Text("\\b");
    default:
      break;
  }
  if (c < 0x20) return Text(unicode_escape(c));
  if (!ensure_ascii || c < 0x7f) return character;
  if (c <= 0xffff) return Text(unicode_escape(c));
  const char32_t rest = c - 0x10000;
  return Text(unicode_escape(0xd800 | rest >> 10) + unicode_escape(0xdc00 | (rest & 0x3ff)));
}

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}

  Text write(const Value& value, size_t depth) const {
    switch (value.kind()) {
      case Kind::none:
        return Text("null");
      case Kind::boolean:
        return Text(value.boolean() ? "true" : "false");
      case Kind::integer:
        return repr(value);
      case Kind::real:
        return Text(number(value.real()));
      case Kind::text:
        return string(value.text());
      case Kind::list:
      case Kind::tuple: {
        const ValueDepth nested;
        std::vector<Text> parts;
        for (const Value& item : value.items()) parts.push_back(write(item, depth + 1));
        return enclosed("[", parts, "]", depth);
      }
      case Kind::dict: {
        const ValueDepth nested;
        return enclosed("{", members(value.dict(), depth), "}", depth);
      }
      default:
        throw RenderError(concat("Object of type ", value.type_name(), " is not JSON serializable"));
    }
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  Text string(const Text& text) const {
    Text out("\"");
    out.append(
        text.marked(false).mapped([&](const Text& c) { return escape_character(c, style_.ensure_ascii); }));
    return out.append("\"");
  }

  Text key(const Value& value) const {
    if (value.is(Kind::text)) return string(value.text());
    if (value.is_number() || value.is(Kind::none)) return string(write(value, 0));
    throw RenderError(concat("keys must be str, int, float, bool or None, not ", value.type_name()));
  }

  std::vector<Text> members(const Dict& dict, size_t depth) const {
    std::vector<Dict::Item> items = dict.items();
    if (style_.sort_keys) {
      std::ranges::stable_sort(items,
                               [](const auto& a, const auto& b) { return less(a.first, b.first, "<"); });
    }
    std::vector<Text> parts;
    for (const auto& [name, value] : items) {
      parts.push_back(key(name).append(style_.key_separator).append(write(value, depth + 1)));
    }
    return parts;
  }

  Text enclosed(const char* open, const std::vector<Text>& parts, const char* close, size_t depth) const {
    Text out(open);
    if (parts.empty()) return out.append(close);
    const auto new_line = [&](size_t indents) {
      out.append("\n");
      for (size_t i = 0; i < indents; i++) out.append(*style_.indent);
    };
    for (size_t i = 0; i < parts.size(); i++) {
      if (i) out.append(style_.item_separator);
      if (style_.indent) new_line(depth + 1);
      out.append(parts[i]);
    }
    if (style_.indent) new_line(depth);
    return out.append(close);
  }

  const JsonStyle& style_;
};

}  // namespace

Text to_json(const Value& value, const JsonStyle& style) { return Writer(style).write(value, 0); }

}  // namespace trainer::jinja
