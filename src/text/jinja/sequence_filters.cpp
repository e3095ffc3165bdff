// Filters that use a whole list or dict.
#include <algorithm>
#include <map>

#include "trainer/base/strings.h"

#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/split.h"
#include "text/jinja/value.h"

namespace trainer::jinja {
namespace {

Value length_filter(const Value& value, const Arguments& arguments) {
  Bound("length", arguments, {});
  return Value(length(value));
}

Value first(const Value& value, const Arguments& arguments) {
  Bound("first", arguments, {});
  const List items = iterate(value);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

// Returns whether Python's reversed() accepts the value.
bool reversible(const Value& value) {
  return !value.is_object() || (value.type_name() != "generator" && !value.type_name().ends_with("iterator"));
}

Value last(const Value& value, const Arguments& arguments) {
  Bound("last", arguments, {});
  if (!reversible(value)) throw RenderError(concat("'", value.type_name(), "' object is not reversible"));
  const List items = iterate(value);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value list(const Value& value, const Arguments& arguments) {
  Bound("list", arguments, {});
  return Value(iterate(value));
}

Value reverse(const Value& value, const Arguments& arguments) {
  Bound("reverse", arguments, {});
  List items = iterate(value);
  std::ranges::reverse(items);
  if (value.is(Kind::text)) {
    Text out("", value.text().safe());
    for (const Value& item : items) out.append(item.text());
    return Value(std::move(out));
  }
  return reversible(value) ? generator(std::move(items), "list_reverseiterator") : Value(std::move(items));
}

Value join_filter(const Value& value, const Arguments& arguments) {
  const Bound given("join", arguments, {"d", "attribute"});
  const AttributeGetter getter(given[1] ? *given[1] : Value());
  Joined joined(given[0] ? to_text(*given[0]) : Text());
  for (const Value& item : iterate(value)) joined.add(to_text(getter(item)));
  return Value(joined.take());
}

Value items(const Value& value, const Arguments& arguments) {
  Bound("items", arguments, {});
  if (value.is_undefined()) return generator({});
  if (!value.is(Kind::dict)) throw RenderError("Can only get item pairs from a mapping.");
  return generator(iterate(dict_view(value, "items")));
}

struct Keyed {
  Value key, value;
};
using KeyedItems = CountedVector<Keyed>;

List sorted(KeyedItems keyed, bool reverse) {
  std::ranges::stable_sort(keyed, [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b.key, a.key, "<") : less(a.key, b.key, "<");
  });
  List out;
  for (Keyed& item : keyed) out.push_back(std::move(item.value));
  return out;
}

Value sort(const Value& value, const Arguments& arguments) {
  const Bound given("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = given.truth(1, false);
  std::vector<AttributeGetter> getters;
  if (given[2] && given[2]->is(Kind::text)) {
    const Text comma(",");
    for (const Value& name : split_left(given[2]->text(), &comma, -1)) getters.emplace_back(name);
  } else {
    getters.emplace_back(given[2] ? *given[2] : Value());
  }
  KeyedItems keyed;
  for (const Value& item : iterate(value)) {
    List key;
    for (const AttributeGetter& get : getters)
      key.push_back(case_sensitive ? get(item) : without_case(get(item)));
    keyed.push_back({Value(std::move(key)), item});
  }
  return Value(sorted(std::move(keyed), given.truth(0, false)));
}

Value dictsort(const Value& value, const Arguments& arguments) {
  const Bound given("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = given.text(1, "key").bytes();
  if (by != "key" && by != "value") throw RenderError("You can only sort by either \"key\" or \"value\"");
  if (value.is_undefined()) throw RenderError(value.why_undefined());
  if (!value.is(Kind::dict))
    throw RenderError(concat("'", value.type_name(), "' object has no attribute 'items'"));
  KeyedItems keyed;
  for (const auto& [key, item] : value.dict().items()) {
    const Value& sorted_by = by == "key" ? key : item;
    keyed.push_back({given.truth(0, false) ? sorted_by : without_case(sorted_by), Value::tuple({key, item})});
  }
  return Value(sorted(std::move(keyed), given.truth(2, false)));
}

Value unique(const Value& value, const Arguments& arguments) {
  const Bound given("unique", arguments, {"case_sensitive", "attribute"});
  const AttributeGetter getter(given[1] ? *given[1] : Value());
  Dict seen;
  List kept;
  for (const Value& item : iterate(value)) {
    if (seen.set(given.truth(0, false) ? getter(item) : without_case(getter(item)), Value()))
      kept.push_back(item);
  }
  return generator(std::move(kept));
}

template <bool greatest>
Value extreme(const Value& value, const Arguments& arguments) {
  const Bound given("min", arguments, {"case_sensitive", "attribute"});
  const AttributeGetter getter(given[1] ? *given[1] : Value());
  const List all = iterate(value);
  if (all.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& item) {
    return given.truth(0, false) ? getter(item) : without_case(getter(item));
  };
  size_t best = 0;
  Value best_key = key(all[0]);
  for (size_t i = 1; i < all.size(); i++) {
    Value next = key(all[i]);
    if (greatest ? less(best_key, next, ">") : less(next, best_key, "<")) {
      best = i;
      best_key = std::move(next);
    }
  }
  return all[best];
}

Value sum(const Value& value, const Arguments& arguments) {
  const Bound given("sum", arguments, {"attribute", "start"});
  const AttributeGetter getter(given[0] ? *given[0] : Value());
  Value total = given[1] ? *given[1] : Value(int64_t{0});
  if (total.is(Kind::text)) throw RenderError("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(value)) total = add(total, getter(item));
  return total;
}

Value batch(const Value& value, const Arguments& arguments) {
  const Bound given("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t count = given.integer(0, 0);
  if (count < 1) throw Unsupported("batches of less than one item");
  const size_t size = static_cast<size_t>(count);
  const List all = iterate(value);
  List out;
  for (size_t i = 0; i < all.size(); i += size) {
    List part(all.begin() + static_cast<std::ptrdiff_t>(i),
              all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), i + size)));
    if (given[1] && !given[1]->is(Kind::none)) {
      Budget::require_room(std::min(size, size_t{1} << 40) * sizeof(Value));
      part.resize(size, *given[1]);
    }
    out.push_back(Value(std::move(part)));
  }
  return generator(std::move(out));
}

Value slice(const Value& value, const Arguments& arguments) {
  const Bound given("slice", arguments, {"slices", "fill_with"}, 1);
  const int64_t count = given.integer(0, 0);
  if (count < 1) throw Unsupported("less than one slice");
  const List all = iterate(value);
  const size_t slices = static_cast<size_t>(count), size = all.size() / slices, longer = all.size() % slices;
  List out;
  for (size_t i = 0, at = 0; i < slices; i++) {
    const size_t end = at + size + (i < longer);
    List part(all.begin() + static_cast<std::ptrdiff_t>(at), all.begin() + static_cast<std::ptrdiff_t>(end));
    if (given[1] && !given[1]->is(Kind::none) && i >= longer) part.push_back(*given[1]);
    out.push_back(Value(std::move(part)));
    at = end;
  }
  return generator(std::move(out));
}

Value default_filter(const Value& value, const Arguments& arguments) {
  const Bound given("default", arguments, {"default_value", "boolean"});
  if (!value.is_undefined() && !(given.truth(1, false) && !value.truth())) return value;
  return given[0] ? *given[0] : Value("");
}

Value attr(const Value& value, const Arguments& arguments) {
  const Bound given("attr", arguments, {"name"}, 1);
  if (value.is(Kind::dict)) throw Unsupported("the filter 'attr' of a dict");
  return get_attribute(value, given.text(0).bytes());
}

}  // namespace

Filter find_sequence_filter(const std::string& name) {
  static const std::map<std::string, Filter> filters = {
      {"attr", attr},
      {"batch", batch},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dictsort},
      {"first", first},
      {"items", items},
      {"join", join_filter},
      {"last", last},
      {"length", length_filter},
      {"list", list},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reverse", reverse},
      {"slice", slice},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  };
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace trainer::jinja
