// The methods of str.
#include <algorithm>
#include <map>

#include "trainer/base/strings.h"

#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/split.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace trainer::jinja {
namespace {

Bound positional_only(const char* name, const Arguments& arguments, std::initializer_list<const char*> names,
                      size_t required = 0) {
  if (!arguments.named.empty()) throw RenderError(concat("str.", name, "() takes no keyword arguments"));
  return Bound(concat("str.", name, "()"), arguments, names, required);
}

template <bool left, bool right>
Value strip(const Text& self, const Arguments& arguments) {
  const Bound given = positional_only("strip", arguments, {"chars"});
  if (!given[0] || given[0]->is(Kind::none)) return Value(self.strip(nullptr, left, right));
  const Text set = given.text(0);
  return Value(self.strip(&set, left, right));
}

template <Text (*change)(const Text&)>
Value changed_text(const Text& self, const Arguments& arguments) {
  positional_only("upper", arguments, {});
  return Value(change(self).marked(self.safe()));
}

template <bool (*holds)(const Text&)>
Value tested(const Text& self, const Arguments& arguments) {
  positional_only("is...", arguments, {});
  return Value(holds(self));
}

template <List (*split_text)(const Text&, const Text*, int64_t)>
Value split(const Text& self, const Arguments& arguments) {
  const Bound given("str.split()", arguments, {"sep", "maxsplit"});
  if (!given[0] || given[0]->is(Kind::none)) return Value(split_text(self, nullptr, given.integer(1, -1)));
  const Text separator = given.text(0);
  if (separator.empty()) throw RenderError("empty separator");
  return Value(split_text(self, &separator, given.integer(1, -1)));
}

Value split_lines_method(const Text& self, const Arguments& arguments) {
  const Bound given("str.splitlines()", arguments, {"keepends"});
  return Value(split_lines(self, given.truth(0, false)));
}

// A part of the text in bytes, given by character indices as in a slice.
struct Part {
  size_t begin, end;
  bool valid;  // the start is not after the end
};

Part part_of(const Text& self, const Bound& given, size_t first) {
  if (!given[first] && !given[first + 1]) return {0, self.bytes().size(), true};
  const CountedVector<size_t> at = self.borders();
  const int64_t length = static_cast<int64_t>(at.size()) - 1;
  const auto bound = [&](size_t i, int64_t fallback) {
    if (!given[i] || given[i]->is(Kind::none)) return fallback;
    const int64_t place = given.integer(i, 0);
    return place < 0 ? std::max<int64_t>(place + length, 0) : place;
  };
  const int64_t start = bound(first, 0), stop = std::min(bound(first + 1, length), length);
  if (start > stop) return {0, 0, false};
  return {at[static_cast<size_t>(start)], at[static_cast<size_t>(stop)], true};
}

template <bool at_start>
Value starts_or_ends(const Text& self, const Arguments& arguments) {
  const Bound given =
      positional_only(at_start ? "startswith" : "endswith", arguments, {"prefix", "start", "end"}, 1);
  const Part part = part_of(self, given, 1);
  const std::string_view text = std::string_view(self.bytes()).substr(part.begin, part.end - part.begin);
  const auto matches = [&](const Value& value) {
    if (!value.is(Kind::text)) {
      throw RenderError(concat(at_start ? "startswith" : "endswith",
                               " first arg must be str or a tuple of str, not ", value.type_name()));
    }
    const std::string& affix = value.text().bytes();
    Budget::spend_bytes(std::min(affix.size(), text.size()));
    return part.valid && (at_start ? text.starts_with(affix) : text.ends_with(affix));
  };
  if (given.at(0).is(Kind::tuple)) return Value(std::ranges::any_of(given.at(0).items(), matches));
  return Value(matches(given.at(0)));
}

// The index of the character where the sought text begins, or -1.
template <bool last>
int64_t place_of(const Text& self, const Bound& given) {
  const Text sought = given.text(0);
  const Part part = part_of(self, given, 1);
  if (!part.valid) return -1;
  const std::string_view text = std::string_view(self.bytes()).substr(part.begin, part.end - part.begin);
  const size_t found = last ? find_last_bytes(text, sought.bytes()) : find_bytes(text, sought.bytes(), 0);
  if (found == std::string_view::npos) return -1;
  return static_cast<int64_t>(self.slice(0, part.begin + found).length());
}

template <bool last, bool must>
Value find(const Text& self, const Arguments& arguments) {
  const Bound given = positional_only(last ? "rfind" : "find", arguments, {"sub", "start", "end"}, 1);
  const int64_t place = place_of<last>(self, given);
  if (must && place < 0) throw RenderError("substring not found");
  return Value(place);
}

Value count(const Text& self, const Arguments& arguments) {
  const Bound given = positional_only("count", arguments, {"sub", "start", "end"}, 1);
  const Text sought = given.text(0);
  const Part part = part_of(self, given, 1);
  if (!part.valid) return Value(int64_t{0});
  const Text within = self.slice(part.begin, part.end);
  if (sought.empty()) return Value(static_cast<int64_t>(within.length()) + 1);
  int64_t number = 0;
  for (size_t at = 0; (at = find_bytes(within.bytes(), sought.bytes(), at)) != std::string::npos;
       at += sought.bytes().size())
    number++;
  return Value(number);
}

Value replace_method(const Text& self, const Arguments& arguments) {
  const Bound given = positional_only("replace", arguments, {"old", "new", "count"}, 2);
  return Value(replace(self, given.text(0), given.text(1), given.integer(2, -1)));
}

Value join_method(const Text& self, const Arguments& arguments) {
  const Bound given = positional_only("join", arguments, {"iterable"}, 1);
  Joined joined(self);
  for (size_t i = 0; const Value& item : iterate(given.at(0))) {
    if (!item.is(Kind::text)) {
      throw RenderError(concat("sequence item ", i, ": expected str instance, ", item.type_name(), " found"));
    }
    joined.add(item.text());
    i++;
  }
  return Value(joined.take());
}

template <bool prefix>
Value remove_affix(const Text& self, const Arguments& arguments) {
  const Bound given = positional_only(prefix ? "removeprefix" : "removesuffix", arguments, {"affix"}, 1);
  const std::string affix = given.text(0).bytes();
  const size_t size = self.bytes().size();
  if (affix.empty() || !(prefix ? self.bytes().starts_with(affix) : self.bytes().ends_with(affix)))
    return Value(self);
  return Value(prefix ? self.slice(affix.size(), size) : self.slice(0, size - affix.size()));
}

template <bool last>
Value partition(const Text& self, const Arguments& arguments) {
  const Bound given = positional_only("partition", arguments, {"sep"}, 1);
  const Text separator = given.text(0);
  if (separator.empty()) throw RenderError("empty separator");
  const size_t size = self.bytes().size();
  const size_t at = last ? find_last_bytes(self.bytes(), separator.bytes())
                         : find_bytes(self.bytes(), separator.bytes(), 0);
  if (at == std::string::npos)
    return last ? Value::tuple({"", "", Value(self)}) : Value::tuple({Value(self), "", ""});
  return Value::tuple({Value(self.slice(0, at)), Value(self.slice(at, at + separator.bytes().size())),
                       Value(self.slice(at + separator.bytes().size(), size))});
}

enum class Side { left, center, right };

template <Side side>
Value justify(const Text& self, const Arguments& arguments) {
  const Bound given = positional_only("ljust", arguments, {"width", "fillchar"}, 1);
  const Text fill = given.text(1, " ");
  if (fill.length() != 1) throw RenderError("The fill character must be exactly one character long");
  return Value(padded(self, given.integer(0, 0), fill,
                      side == Side::left    ? '<'
                      : side == Side::right ? '>'
                                            : 'c'));
}

Value zero_fill(const Text& self, const Arguments& arguments) {
  const Bound given = positional_only("zfill", arguments, {"width"}, 1);
  const bool sign = self.bytes().starts_with('+') || self.bytes().starts_with('-');
  const Text digits = self.slice(sign ? 1 : 0, self.bytes().size());
  return Value(
      self.slice(0, sign ? 1 : 0).append(padded(digits, given.integer(0, 0) - sign, Text("0"), '>')));
}

Value format_method(const Text& self, const Arguments& arguments) {
  return Value(brace_format(self, arguments));
}

}  // namespace

TextMethod text_method(const std::string& name) {
  static const std::map<std::string, TextMethod> methods = {
      {"strip", strip<true, true>},
      {"lstrip", strip<true, false>},
      {"rstrip", strip<false, true>},
      {"upper", changed_text<upper>},
      {"lower", changed_text<lower>},
      {"capitalize", changed_text<capitalize>},
      {"title", changed_text<title>},
      {"swapcase", changed_text<swap_case>},
      {"casefold", changed_text<case_fold>},
      {"split", split<split_left>},
      {"rsplit", split<split_right>},
      {"splitlines", split_lines_method},
      {"startswith", starts_or_ends<true>},
      {"endswith", starts_or_ends<false>},
      {"find", find<false, false>},
      {"rfind", find<true, false>},
      {"index", find<false, true>},
      {"rindex", find<true, true>},
      {"count", count},
      {"replace", replace_method},
      {"join", join_method},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"ljust", justify<Side::left>},
      {"rjust", justify<Side::right>},
      {"center", justify<Side::center>},
      {"zfill", zero_fill},
      {"format", format_method},
      {"isalnum", tested<is_alnum>},
      {"isalpha", tested<is_alpha>},
      {"isascii", tested<is_ascii>},
      {"isdecimal", tested<is_decimal>},
      {"isdigit", tested<is_digit>},
      {"islower", tested<is_lower_text>},
      {"isprintable", tested<is_printable_text>},
      {"isspace", tested<is_space_text>},
      {"istitle", tested<is_title_text>},
      {"isupper", tested<is_upper_text>},
  };
  const auto found = methods.find(name);
  return found == methods.end() ? nullptr : found->second;
}

}  // namespace trainer::jinja
