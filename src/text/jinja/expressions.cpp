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

}  // namespace trainer::jinja
