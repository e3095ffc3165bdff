// Tests: {{ value is NAME }}.
#include <map>

#include "trainer/base/strings.h"

#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace trainer::jinja {
namespace {

template <bool (*holds)(const Value&)>
bool plain(const Value& value, const Arguments& arguments) {
  Bound("the test", arguments, {});
  return holds(value);
}

template <bool (*holds)(const Value&, const Value&)>
bool with_other(const Value& value, const Arguments& arguments) {
  const Bound given("the test", arguments, {"other"}, 1);
  return holds(value, given.at(0));
}

template <Kind kind>
bool is_kind(const Value& value) {
  return value.is(kind);
}

template <bool wanted>
bool is_bool(const Value& value) {
  return value.is(Kind::boolean) && value.boolean() == wanted;
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_number(const Value& value) { return value.is_number(); }

bool is_sequence(const Value& value) {
  if (value.is_object()) return value.type_name() == "range";
  return !value.is_number() && !value.is(Kind::none);
}

bool is_iterable(const Value& value) {
  if (value.is_object()) {
    const std::string type = value.type_name();
    return type == "range" || type.starts_with("dict_") || type.ends_with("iterator") ||
           type == "generator" || type == "LoopContext";
  }
  return !value.is_number() && !value.is(Kind::none);
}

bool is_callable(const Value& value) {
  return value.is_undefined() || (value.is_object() && value.object().callable());
}

bool is_escaped(const Value& value) { return value.is(Kind::text) && value.text().safe(); }
bool is_lower_case(const Value& value) { return is_lower_text(to_text(value)); }
bool is_upper_case(const Value& value) { return is_upper_text(to_text(value)); }

bool divides(const Value& value, const Value& by) { return equal(modulo(value, by), Value(int64_t{0})); }
bool is_odd(const Value& value) { return equal(modulo(value, Value(int64_t{2})), Value(int64_t{1})); }
bool is_even(const Value& value) { return divides(value, Value(int64_t{2})); }

bool is_in(const Value& value, const Value& container) { return contains(container, value); }
bool is_same(const Value& value, const Value& other) { return value.same_as(other); }
bool is_filter(const Value& value) {
  Budget::spend(64);
  require_hashable(value);
  return value.is(Kind::text) &&
         (find_filter(value.text().bytes()) || is_foreign_filter(value.text().bytes()));
}
bool is_test(const Value& value) {
  Budget::spend(64);
  require_hashable(value);
  return value.is(Kind::text) && find_test(value.text().bytes());
}
bool not_equal(const Value& a, const Value& b) { return !equal(a, b); }
bool greater(const Value& a, const Value& b) { return less(b, a, ">"); }
bool smaller(const Value& a, const Value& b) { return less(a, b, "<"); }
bool greater_or_equal(const Value& a, const Value& b) { return less(b, a, ">=") || equal(a, b); }
bool smaller_or_equal(const Value& a, const Value& b) { return less(a, b, "<=") || equal(a, b); }

}  // namespace

Test find_test(const std::string& name) {
  static const std::map<std::string, Test> tests = {
      {"odd", plain<is_odd>},
      {"even", plain<is_even>},
      {"divisibleby", with_other<divides>},
      {"defined", plain<is_defined>},
      {"undefined", plain<is_kind<Kind::undefined>>},
      {"filter", plain<is_filter>},
      {"test", plain<is_test>},
      {"none", plain<is_kind<Kind::none>>},
      {"boolean", plain<is_kind<Kind::boolean>>},
      {"false", plain<is_bool<false>>},
      {"true", plain<is_bool<true>>},
      {"integer", plain<is_kind<Kind::integer>>},
      {"float", plain<is_kind<Kind::real>>},
      {"lower", plain<is_lower_case>},
      {"upper", plain<is_upper_case>},
      {"string", plain<is_kind<Kind::text>>},
      {"mapping", plain<is_kind<Kind::dict>>},
      {"number", plain<is_number>},
      {"sequence", plain<is_sequence>},
      {"iterable", plain<is_iterable>},
      {"callable", plain<is_callable>},
      {"sameas", with_other<is_same>},
      {"escaped", plain<is_escaped>},
      {"in", with_other<is_in>},
      {"==", with_other<equal>},
      {"eq", with_other<equal>},
      {"equalto", with_other<equal>},
      {"!=", with_other<not_equal>},
      {"ne", with_other<not_equal>},
      {">", with_other<greater>},
      {"gt", with_other<greater>},
      {"greaterthan", with_other<greater>},
      {">=", with_other<greater_or_equal>},
      {"ge", with_other<greater_or_equal>},
      {"<", with_other<smaller>},
      {"lt", with_other<smaller>},
      {"lessthan", with_other<smaller>},
      {"<=", with_other<smaller_or_equal>},
      {"le", with_other<smaller_or_equal>},
  };
  const auto found = tests.find(name);
  return found == tests.end() ? nullptr : found->second;
}

}  // namespace trainer::jinja
