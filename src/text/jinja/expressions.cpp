#include <algorithm>

#include "trainer/base/strings.h"

#include "text/jinja/globals.h"
#include "text/jinja/nodes.h"
#include "text/jinja/operators.h"

namespace trainer::jinja {
namespace {

Value call_value(const Value& function, Arguments arguments) {
  if (function.is_undefined()) throw RenderError(function.why_undefined());
  if (!function.is_object()) throw RenderError(concat("'", function.type_name(), "' object is not callable"));
  return function.object().call(std::move(arguments));
}

}  // namespace

Value NameLoad::evaluate(const Frame& frame) const {
  if (const Value* found = frame.scope.find(name)) return *found;
  frame.at(line);
  const std::string& text = frame.rendering.names[name];
  if (auto global = find_global(text)) return *global;
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

Value AttributeLoad::evaluate(const Frame& frame) const {
  const Value object = value->evaluate(frame);
  frame.at(line);
  return get_attribute(object, name);
}

Value ItemLoad::evaluate(const Frame& frame) const {
  const Value object = value->evaluate(frame), key = index->evaluate(frame);
  frame.at(line);
  return get_item(object, key);
}

Value SliceLoad::evaluate(const Frame& frame) const {
  const Value object = value->evaluate(frame);
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
      out.named.emplace_back(key.text().bytes(), value);
    }
  }
  return out;
}

Value Call::evaluate(const Frame& frame) const { return evaluate_with(frame, {}); }

Value Call::evaluate_with(const Frame& frame, const std::vector<std::pair<std::string, Value>>& more) const {
  const Value called = function->evaluate(frame);
  Arguments given = arguments.evaluate(frame);
  given.named.insert(given.named.end(), more.begin(), more.end());
  frame.at(line);
  return call_value(called, std::move(given));
}

Value FilterCall::evaluate(const Frame& frame) const { return apply(frame, value->evaluate(frame)); }

Value FilterCall::apply(const Frame& frame, const Value& input) const {
  const Arguments given = arguments.evaluate(frame);
  frame.at(line);
  return filter(input, given);
}

Value TestCall::evaluate(const Frame& frame) const {
  const Value tested = value->evaluate(frame);
  const Arguments given = arguments.evaluate(frame);
  frame.at(line);
  return Value(test(tested, given));
}

Value Unary::evaluate(const Frame& frame) const {
  const Value operand = value->evaluate(frame);
  frame.at(line);
  return apply(operand);
}

Value Binary::evaluate(const Frame& frame) const {
  const Value a = left->evaluate(frame), b = right->evaluate(frame);
  frame.at(line);
  return apply(a, b);
}

Value Concatenation::evaluate(const Frame& frame) const {
  Text out;
  for (const auto& part : parts) {
    const Value value = part->evaluate(frame);
    frame.at(line);
    out.append(to_text(value));
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
  Value value = left->evaluate(frame);
  return value.truth() == is_and ? right->evaluate(frame) : value;
}

Value Conditional::evaluate(const Frame& frame) const {
  if (condition->evaluate(frame).truth()) return yes->evaluate(frame);
  if (no) return no->evaluate(frame);
  return Value::undefined(concat("the inline if-expression on line ", line,
                                 " evaluated to false and no else section was defined."));
}

}  // namespace trainer::jinja
