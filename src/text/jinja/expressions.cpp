#include <algorithm>

#include "trainer/base/strings.h"

#include "text/jinja/globals.h"
#include "text/jinja/methods.h"
#include "text/jinja/nodes.h"
#include "text/jinja/operators.h"

namespace trainer::jinja {
namespace {

Value call_value(const Value& function, Arguments arguments) {
  if (function.is_undefined()) throw RenderError(function.why_undefined());
  if (!function.is_object()) throw RenderError(concat("'", function.type_name(), "' object is not callable"));
  return function.object().call(std::move(arguments));
}

// value[index], value.name and value[start:stop:step].
bool is_indexed(const Value& value) {
  return value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::tuple);
}

std::optional<Value> element(const Value& value, int64_t index) {
  const int64_t size = length(value);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  const size_t at = static_cast<size_t>(index);
  if (!value.is(Kind::text)) return value.items()[at];
  const Text& text = value.text();
  const size_t begin = text.offset(at);
  return Value(text.slice(begin, begin + character_length(text.bytes(), begin)));
}

std::optional<Value> item_of(const Value& value, const Value& index) {
  if (value.is(Kind::dict)) {
    const Value* found = value.dict().find(index);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (is_indexed(value) && index.is_integral()) return element(value, index.integer());
  if (value.is_object() && value.type_name() == "range" && index.is_integral())
    return element(Value(iterate(value)), index.integer());
  return std::nullopt;
}

std::optional<Value> attribute_of(const Value& value, const std::string& name) {
  if (name.starts_with("__")) {
    return Value::undefined(
        concat("access to attribute '", name, "' of '", value.type_name(), "' object is unsafe."));
  }
  return value.is_object() ? value.object().attribute(name) : method_of(value, name);
}

// The beginning of a text, for messages.
std::string brief(const Text& text) {
  constexpr size_t kShown = 100;
  const std::string_view beginning = std::string_view(text.bytes()).substr(0, 5 * kShown);
  Budget::spend(2 * beginning.size());
  return one_line(beginning, kShown);
}

Value missing(const Value& value, const Value& index) {
  Budget::spend(200);  // messages take a while to write
  if (index.is(Kind::text)) {
    const std::string what = value.is(Kind::none) ? "None" : concat("'", value.type_name(), " object'");
    return Value::undefined(concat(what, " has no attribute '", brief(index.text()), "'"));
  }
  return Value::undefined(concat(value.type_name(), " object has no element ", brief(repr(index))));
}

struct SliceRange {
  int64_t start, stop, step;
};

// Returns Python's slice(start, stop, step).indices(length).
SliceRange slice_range(int64_t length, const Value& start, const Value& stop, const Value& step) {
  const auto part = [](const Value& value) {
    if (value.is_undefined()) throw RenderError(value.why_undefined());
    if (value.is_integral()) return value.integer();
    throw RenderError("slice indices must be integers or None or have an __index__ method");
  };
  SliceRange range{0, 0, step.is(Kind::none) ? 1 : part(step)};
  if (range.step == 0) throw RenderError("slice step cannot be zero");
  range.step = std::clamp(range.step, -length - 1, length + 1);
  const int64_t low = range.step < 0 ? -1 : 0, high = range.step < 0 ? length - 1 : length;
  const auto bound = [&](const Value& value, int64_t fallback) {
    if (value.is(Kind::none)) return fallback;
    const int64_t at = part(value);
    return at < 0 ? std::max(at + length, low) : std::min(at, high);
  };
  range.start = bound(start, range.step < 0 ? high : low);
  range.stop = bound(stop, range.step < 0 ? low : high);
  return range;
}

}  // namespace

Value NameLoad::evaluate(const Frame& frame) const {
  if (const Value* found = frame.scope.find(name)) return *found;
  frame.at(line);
  const std::string& text = frame.rendering.names[name];
  if (auto global = find_global(text, frame.rendering.moment)) return *global;
  return Value::undefined(concat("'", text, "' is undefined"));
}

Value Sequence::evaluate(const Frame& frame) const {
  List out;
  for (const auto& item : items) out.push_back(item->evaluate(frame));
  return tuple ? Value::tuple(std::move(out)) : Value(std::move(out));
}

Value DictDisplay::evaluate(const Frame& frame) const {
  Dict dict;
  for (const auto& [key, value] : items) {
    Value k = key->evaluate(frame), v = value->evaluate(frame);
    frame.at(line);
    dict.set(std::move(k), std::move(v));
  }
  return Value(std::move(dict));
}

Value Chain::evaluate(const Frame& frame) const {
  const Value value = evaluate_called(frame);
  return links.back()->apply(frame, value);
}

Value Chain::evaluate_called(const Frame& frame) const {
  Value value = first->evaluate(frame);
  for (size_t i = 0; i + 1 < links.size(); i++) value = links[i]->apply(frame, value);
  return value;
}

Value AttributeLoad::apply(const Frame& frame, const Value& object) const {
  frame.at(line);
  return get_attribute(object, name);
}

Value ItemLoad::apply(const Frame& frame, const Value& object) const {
  const Value key = index->evaluate(frame);
  frame.at(line);
  return get_item(object, key);
}

Value SliceLoad::apply(const Frame& frame, const Value& object) const {
  Value bounds[3];
  for (size_t i = 0; i < 3; i++) {
    if (parts[i]) bounds[i] = parts[i]->evaluate(frame);
  }
  frame.at(line);
  return get_slice(object, bounds[0], bounds[1], bounds[2]);
}

Arguments ArgumentList::evaluate(const Frame& frame) const {
  Arguments out;
  for (const auto& argument : positional) out.positional.push_back(argument->evaluate(frame));
  for (const auto& [name, argument] : named) out.named.emplace_back(name, argument->evaluate(frame));
  if (star) {
    for (const Value& item : iterate(star->evaluate(frame))) out.positional.push_back(item);
  }
  if (double_star) {
    const Value more = double_star->evaluate(frame);
    if (!more.is(Kind::dict)) throw RenderError("the argument after ** must be a mapping");
    for (const auto& [key, value] : more.dict().items()) {
      if (!key.is(Kind::text)) throw RenderError("keywords must be strings");
      Budget::spend_bytes(64 + key.text().bytes().size());
      out.named.emplace_back(key.text().bytes(), value);
    }
  }
  return out;
}

Value Call::apply_with(const Frame& frame, const Value& function,
                       const std::vector<std::pair<std::string, Value>>& more) const {
  Arguments given = arguments.evaluate(frame);
  given.named.insert(given.named.end(), more.begin(), more.end());
  frame.at(line);
  return call_value(function, std::move(given));
}

Value FilterCall::apply(const Frame& frame, const Value& input) const {
  const Arguments given = arguments.evaluate(frame);
  frame.at(line);
  return filter(input, given);
}

Value TestCall::apply(const Frame& frame, const Value& tested) const {
  const Arguments given = arguments.evaluate(frame);
  frame.at(line);
  return Value(test(tested, given) != negated);
}

Value Unary::evaluate(const Frame& frame) const {
  const Value operand = value->evaluate(frame);
  frame.at(line);
  return apply(operand);
}

Value Binary::evaluate(const Frame& frame) const {
  Value result = first->evaluate(frame);
  for (const Operand& operand : rest) {
    const Value right = operand.value->evaluate(frame);
    frame.at(operand.line);
    result = operand.apply(result, right);
  }
  return result;
}

Value Concatenation::evaluate(const Frame& frame) const {
  Text out;
  for (const auto& part : parts) {
    const Value value = part->evaluate(frame);
    frame.at(line);
    if (value.is(Kind::text)) {
      out.append(value.text());
    } else {
      out.append(to_text(value));
    }
  }
  return Value(std::move(out));
}

Value Comparison::evaluate(const Frame& frame) const {
  Value left = first->evaluate(frame);
  for (const auto& [holds, operand] : rest) {
    Value right = operand->evaluate(frame);
    frame.at(line);
    if (!holds(left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Logical::evaluate(const Frame& frame) const {
  Value value = operands.front()->evaluate(frame);
  for (size_t i = 1; i < operands.size() && value.truth() == is_and; i++)
    value = operands[i]->evaluate(frame);
  return value;
}

Value Conditional::evaluate(const Frame& frame) const {
  for (size_t i = choices.size(); i-- > 0;) {
    const auto& [from, condition, no] = choices[i];
    if (condition->evaluate(frame).truth()) continue;
    if (no) return no->evaluate(frame);
    return Value::undefined(concat("the inline if-expression on line ", from,
                                   " evaluated to false and no else section was defined."));
  }
  return yes->evaluate(frame);
}

Value get_item(const Value& value, const Value& index) {
  Budget::spend(8);
  if (value.is_undefined()) throw RenderError(value.why_undefined());
  if (auto found = item_of(value, index)) return *found;
  if (index.is(Kind::text)) {
    if (auto found = attribute_of(value, index.text().bytes())) return *found;
  }
  return missing(value, index);
}

Value get_attribute(const Value& value, const std::string& name) {
  Budget::spend(24);
  if (value.is_undefined()) throw RenderError(value.why_undefined());
  if (auto found = attribute_of(value, name)) return *found;
  const Value index = text_value(name);
  if (auto found = item_of(value, index)) return *found;
  return missing(value, index);
}

Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is_undefined()) throw RenderError(value.why_undefined());
  if (!is_indexed(value)) {
    if (value.is_object() && value.type_name() == "range") throw Unsupported("a slice of a range");
    throw RenderError(concat("'", value.type_name(), "' object is not subscriptable by a slice"));
  }
  const SliceRange range = slice_range(length(value), start, stop, step);
  if (value.is(Kind::text)) {
    const Text& text = value.text();
    if (range.step == 1) {
      const size_t last = static_cast<size_t>(std::max(range.start, range.stop));
      return Value(text.slice(text.offset(static_cast<size_t>(range.start)), text.offset(last)));
    }
    const CountedVector<size_t> at = text.borders();
    Text out("", text.safe());
    for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step)
      out.append(text.slice(at[static_cast<size_t>(i)], at[static_cast<size_t>(i) + 1]));
    return Value(std::move(out));
  }
  List out;
  for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step)
    out.push_back(value.items()[static_cast<size_t>(i)]);
  return value.is(Kind::list) ? Value(std::move(out)) : Value::tuple(std::move(out));
}

}  // namespace trainer::jinja
