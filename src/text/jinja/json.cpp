#include "text/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer/base/strings.h"

#include "base/utf8.h"

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
        throw Unsupported(concat("the number ", json.dump(), ", which is beyond 9223372036854775807;"));
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

// "" for a character that stays as it is.
std::string escape(char32_t c, bool ensure_ascii) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\f':
      return "\\f";
    case '\b':
      return "\\b";
    default:
      break;
  }
  if (c < 0x20) return unicode_escape(c);
  if (!ensure_ascii || c < 0x7f) return "";
  if (c <= 0xffff) return unicode_escape(c);
  const char32_t rest = c - 0x10000;
  return unicode_escape(0xd800 | rest >> 10) + unicode_escape(0xdc00 | (rest & 0x3ff));
}

class Writer {
 public:
  Writer(const JsonStyle& style, Text& out) : style_(style), out_(out) {}

  void write(const Value& value, size_t depth) const {
    Budget::spend(8);
    switch (value.kind()) {
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        out_.append(plain(value));
        break;
      case Kind::text:
        write_string(value.text());
        break;
      case Kind::list:
      case Kind::tuple:
        write_items(value.items(), depth);
        break;
      case Kind::dict:
        write_dict(value.dict(), depth);
        break;
      default:
        throw RenderError(concat("Object of type ", value.type_name(), " is not JSON serializable"));
    }
  }

 private:
  static std::string plain(const Value& value) {
    if (value.is(Kind::none)) return "null";
    if (value.is(Kind::boolean)) return value.boolean() ? "true" : "false";
    if (value.is(Kind::integer)) return std::to_string(value.integer());
    const double number = value.real();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    Budget::spend(40);
    return float_repr(number);
  }

  void write_string(const Text& text) const {
    out_.append("\"");
    out_.append(text.replaced([&](char32_t c) { return escape(c, style_.ensure_ascii); }));
    out_.append("\"");
  }

  void write_key(const Value& value) const {
    if (value.is(Kind::text)) {
      write_string(value.text());
    } else if (value.is_number() || value.is(Kind::none)) {
      write_string(Text(plain(value)));
    } else {
      throw RenderError(concat("keys must be str, int, float, bool or None, not ", value.type_name()));
    }
  }

  void write_items(const List& items, size_t depth) const {
    const ValueDepth nested;
    out_.append("[");
    for (size_t i = 0; i < items.size(); i++) {
      begin_item(i, depth + 1);
      write(items[i], depth + 1);
    }
    if (!items.empty()) new_line(depth);
    out_.append("]");
  }

  void write_dict(const Dict& dict, size_t depth) const {
    const ValueDepth nested;
    CountedVector<Dict::Item> items = dict.items();
    if (style_.sort_keys) {
      std::ranges::stable_sort(items,
                               [](const auto& a, const auto& b) { return less(a.first, b.first, "<"); });
    }
    out_.append("{");
    for (size_t i = 0; i < items.size(); i++) {
      begin_item(i, depth + 1);
      write_key(items[i].first);
      out_.append(style_.key_separator);
      write(items[i].second, depth + 1);
    }
    if (!items.empty()) new_line(depth);
    out_.append("}");
  }

  void begin_item(size_t index, size_t depth) const {
    if (index) out_.append(style_.item_separator);
    new_line(depth);
  }

  void new_line(size_t depth) const {
    if (!style_.indent) return;
    out_.append("\n");
    for (size_t i = 0; i < depth; i++) out_.append(*style_.indent);
  }

  const JsonStyle& style_;
  Text& out_;
};

}  // namespace

Text to_json(const Value& value, const JsonStyle& style) {
  Text out;
  Writer(style, out).write(value, 0);
  return out;
}

}  // namespace trainer::jinja
