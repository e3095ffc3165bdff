#include "text/jinja/filters.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "trainer/base/strings.h"

#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/split.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace trainer::jinja {

Filter find_filter(const std::string& name) {
  for (const auto find :
       {find_text_filter, find_number_filter, find_sequence_filter, find_selecting_filter}) {
    if (const Filter filter = find(name)) return filter;
  }
  return nullptr;
}

bool is_foreign_filter(const std::string& name) {
  constexpr std::array<std::string_view, 9> foreign = {"filesizeformat", "groupby",   "pprint",
                                                       "random",         "striptags", "urlencode",
                                                       "urlize",         "wordwrap",  "xmlattr"};
  return std::ranges::find(foreign, name) != foreign.end();
}

// map, select, reject, selectattr, rejectattr.
AttributeGetter::AttributeGetter(const Value& attribute, std::optional<Value> fallback)
    : fallback_(std::move(fallback)) {
  if (attribute.is(Kind::none)) return;
  if (!attribute.is(Kind::text)) {
    parts_.push_back(attribute);
    return;
  }
  const Text dot(".");
  for (const Value& name : split_left(attribute.text().marked(false), &dot, -1)) {
    const std::string& part = name.text().bytes();
    const bool number =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    parts_.push_back(number ? Value(static_cast<int64_t>(std::stol(part))) : name);
  }
}

Value AttributeGetter::operator()(const Value& item) const {
  Value value = item;
  for (const Value& part : parts_) {
    value = get_item(value, part);
    if (fallback_ && value.is_undefined()) value = *fallback_;
  }
  return value;
}

Value without_case(const Value& value) { return value.is(Kind::text) ? Value(lower(value.text())) : value; }
namespace {

// The arguments after the first `count`, which name attributes, filters and tests.
Arguments after(const Arguments& arguments, size_t count) {
  Arguments out = arguments;
  out.positional.erase(out.positional.begin(), out.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return out;
}

std::string name_at(const Arguments& arguments, size_t i, const char* of_what) {
  if (!arguments.positional[i].is(Kind::text))
    throw RenderError(concat("the name of a ", of_what, " is a string"));
  return arguments.positional[i].text().bytes();
}

Value map(const Value& value, const Arguments& arguments) {
  const ValueDepth depth;  // map('map', ...)
  if (!value.truth()) return generator({});
  List out;
  if (arguments.positional.empty()) {
    const Bound given("map", arguments, {"attribute", "default"}, 1);
    const bool has_default = given[1] && !given[1]->is(Kind::none);
    const AttributeGetter getter(given.at(0), has_default ? std::optional(*given[1]) : std::nullopt);
    for (const Value& item : iterate(value)) out.push_back(getter(item));
    return generator(std::move(out));
  }
  const std::string name = name_at(arguments, 0, "filter");
  const Filter filter = find_filter(name);
  if (!filter && is_foreign_filter(name)) throw Unsupported(concat("the filter '", name, "'"));
  if (!filter) throw RenderError(concat("No filter named '", name, "'."));
  const Arguments rest = after(arguments, 1);
  for (const Value& item : iterate(value)) out.push_back(filter(item, rest));
  return generator(std::move(out));
}

template <bool wanted, bool by_attribute>
Value select(const Value& value, const Arguments& arguments) {
  if (!value.truth()) return generator({});
  const size_t first = by_attribute ? 1 : 0;
  if (arguments.positional.size() < first) throw RenderError("Missing parameter for attribute name");
  const AttributeGetter getter(by_attribute ? arguments.positional[0] : Value());
  Test test = [](const Value& tested, const Arguments&) { return tested.truth(); };
  Arguments rest;
  if (arguments.positional.size() > first) {
    const std::string name = name_at(arguments, first, "test");
    test = find_test(name);
    if (!test) throw RenderError(concat("No test named '", name, "'."));
    rest = after(arguments, first + 1);
  }
  List out;
  for (const Value& item : iterate(value)) {
    if (test(getter(item), rest) == wanted) out.push_back(item);
  }
  return generator(std::move(out));
}

}  // namespace

Filter find_selecting_filter(const std::string& name) {
  static const std::map<std::string, Filter> filters = {
      {"map", map},
      {"reject", select<false, false>},
      {"rejectattr", select<false, true>},
      {"select", select<true, false>},
      {"selectattr", select<true, true>},
  };
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace trainer::jinja
