// Filters that return texts.
#include <map>

#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/json.h"
#include "text/jinja/operators.h"
#include "text/jinja/split.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"
#include "text/unicode/unicode.h"

namespace trainer::jinja {
namespace {

Value trim(const Value& value, const Arguments& arguments) {
  const Bound given("trim", arguments, {"chars"});
  const Text text = to_text(value);
  if (!given[0] || given[0]->is(Kind::none)) return Value(text.strip(nullptr, true, true));
  const Text set = given.text(0);
  return Value(text.strip(&set, true, true));
}

template <Text (*change)(const Text&)>
Value changed(const Value& value, const Arguments& arguments) {
  Bound("the filter", arguments, {});
  const Text text = to_text(value);
  return Value(change(text).marked(text.safe()));
}

bool separates_words(char32_t c) {
  return is_python_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
}

// Unlike str.title(), only white space, hyphens and opening brackets end a word.
Text title_words(const Text& text) {
  const CountedVector<size_t> at = text.borders();
  const auto separates = [&](size_t i) {
    size_t offset = at[i];
    return separates_words(next_code_point(text.bytes(), offset));
  };
  Text out;
  for (size_t i = 0; i + 1 < at.size();) {
    size_t end = i + 1;
    if (!separates(i)) {
      while (end + 1 < at.size() && !separates(end)) end++;
    }
    out.append(upper(text.slice(at[i], at[i + 1]))).append(lower(text.slice(at[i + 1], at[end])));
    i = end;
  }
  return out;
}

Value replace_filter(const Value& value, const Arguments& arguments) {
  const Bound given("replace", arguments, {"old", "new", "count"}, 2);
  const int64_t count = given[2] && !given[2]->is(Kind::none) ? given.integer(2, -1) : -1;
  return Value(replace(to_text(value).marked(false), to_text(given.at(0)), to_text(given.at(1)), count));
}

Text required_text(const Value& value, const char* filter) {
  if (value.is_undefined()) throw RenderError(value.why_undefined());
  if (value.is(Kind::text)) return value.text();
  throw RenderError(concat("the filter '", filter, "' wants a string, not '", value.type_name(), "'"));
}

Value indent(const Value& value, const Arguments& arguments) {
  const Bound given("indent", arguments, {"width", "first", "blank"});
  const Text text = required_text(value, "indent").append("\n");
  const Text blanks = given[0] && given[0]->is(Kind::text)
                          ? given[0]->text()
                          : padded(Text(), given.integer(0, 4), Text(" "), '>');
  const List lines = split_lines(text, false);
  Text out;
  if (given.truth(1, false)) out.append(blanks);
  for (size_t i = 0; i < lines.size(); i++) {
    const Text& line = lines[i].text();
    if (i) out.append("\n");
    if (i && (given.truth(2, false) || !line.empty())) out.append(blanks);
    out.append(line);
  }
  return Value(std::move(out));
}

Value center(const Value& value, const Arguments& arguments) {
  const Bound given("center", arguments, {"width"});
  return Value(padded(to_text(value), given.integer(0, 80), Text(" "), 'c'));
}

Value truncate(const Value& value, const Arguments& arguments) {
  const Bound given("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Text end = given.text(2, "...");
  const int64_t length = given.integer(0, 255), tail = static_cast<int64_t>(end.length());
  const int64_t leeway = given[3] && !given[3]->is(Kind::none) ? given.integer(3, 5) : 5;
  if (length < tail) throw RenderError(concat("expected length >= ", tail, ", got ", length));
  if (leeway < 0) throw RenderError(concat("expected leeway >= 0, got ", leeway));
  if (trainer::jinja::length(value) <= length + leeway) return value;
  const Text text = required_text(value, "truncate");
  Text kept = text.slice(0, text.offset(static_cast<size_t>(length - tail)));
  const Text blank(" ");
  if (!given.truth(1, false)) kept = split_right(kept, &blank, 1)[0].text();
  return Value(kept.append(end));
}

Value word_count(const Value& value, const Arguments& arguments) {
  Bound("wordcount", arguments, {});
  int64_t count = 0;
  bool in_word = false;
  const Text text = to_text(value);
  for (size_t at = 0; at < text.bytes().size();) {
    Budget::spend(16);
    const char32_t c = next_code_point(text.bytes(), at);
    const bool word = c == '_' || is_alnum(Text(utf8(c)));
    count += word && !in_word;
    in_word = word;
  }
  return Value(count);
}

Value format_filter(const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    throw RenderError("can't handle positional and keyword arguments at the same time");
  if (arguments.named.empty())
    return Value(printf_format(to_text(value), Value::tuple(arguments.positional)));
  Dict named;
  for (const auto& [name, item] : arguments.named) named.set(text_value(name), item);
  return Value(printf_format(to_text(value), Value(std::move(named))));
}

Value string(const Value& value, const Arguments& arguments) {
  Bound("string", arguments, {});
  return Value(to_text(value));
}

Value safe(const Value& value, const Arguments& arguments) {
  Bound("safe", arguments, {});
  return Value(to_text(value).marked(true));
}

Value escape(const Value& value, const Arguments& arguments) {
  Bound("escape", arguments, {});
  const Text text = to_text(value);
  return Value(text.safe() ? text : escape_html(text));
}

Value force_escape(const Value& value, const Arguments& arguments) {
  Bound("forceescape", arguments, {});
  return Value(escape_html(to_text(value).marked(false)));
}

Value tojson(const Value& value, const Arguments& arguments) {
  const Bound given("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = given.truth(0, false);
  style.sort_keys = given.truth(3, false);
  if (given[1] && !given[1]->is(Kind::none)) {
    style.item_separator = Text(",");
    style.indent =
        given[1]->is(Kind::text)
            ? given[1]->text().bytes()
            : std::string(static_cast<size_t>(std::clamp<int64_t>(given.integer(1, 0), 0, 1000)), ' ');
  }
  if (given[2] && !given[2]->is(Kind::none)) {
    const List separators = iterate(*given[2]);
    if (separators.size() != 2 || !separators[0].is(Kind::text) || !separators[1].is(Kind::text))
      throw RenderError("the separators of tojson are two strings");
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return Value(to_json(value, style));
}

}  // namespace

Filter find_text_filter(const std::string& name) {
  static const std::map<std::string, Filter> filters = {
      {"capitalize", changed<capitalize>},
      {"center", center},
      {"e", escape},
      {"escape", escape},
      {"forceescape", force_escape},
      {"format", format_filter},
      {"indent", indent},
      {"lower", changed<lower>},
      {"replace", replace_filter},
      {"safe", safe},
      {"string", string},
      {"title", changed<title_words>},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", changed<upper>},
      {"wordcount", word_count},
  };
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace trainer::jinja
