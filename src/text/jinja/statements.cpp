#include "trainer/base/strings.h"

#include "text/jinja/globals.h"
#include "text/jinja/nodes.h"
#include "text/jinja/operators.h"

namespace trainer::jinja {
namespace {

void print(const Frame& frame, const Value& value, Text& out) {
  if (value.is(Kind::text)) {
    out.append(value.text(), frame.rendering.turn);
  } else {
    out.append(to_text(value), frame.rendering.turn);
  }
}

}  // namespace

void Target::assign(const Frame& frame, Value value) const {
  frame.at(line);
  if (parts) {
    const List items = iterate(value);
    if (value.is_undefined() && parts->empty()) throw RenderError(value.why_undefined());
    if (items.size() != parts->size()) {
      throw RenderError(concat(items.size() < parts->size() ? "not enough" : "too many",
                               " values to unpack (expected ", parts->size(), ")"));
    }
    for (size_t i = 0; i < items.size(); i++) (*parts)[i].assign(frame, items[i]);
  } else if (attribute.empty()) {
    frame.scope.set(name, std::move(value));
  } else {
    const Value* target = frame.scope.find(name);
    set_in_namespace(target ? *target : Value(), attribute, std::move(value));
  }
}

Flow Block::execute(const Frame& frame, Text& out) const {
  for (const auto& statement : statements) {
    Budget::spend(8);
    const Flow flow = statement->execute(frame, out);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Text Block::write(const Frame& frame) const {
  Text out;
  execute(InnerFrame(frame), out);
  return out;
}

Flow Data::execute(const Frame& frame, Text& out) const {
  out.append(text, frame.rendering.turn);
  return Flow::next;
}

Flow Print::execute(const Frame& frame, Text& out) const {
  const Value printed = value->evaluate(frame);
  frame.at(line);
  print(frame, printed, out);
  return Flow::next;
}

Flow If::execute(const Frame& frame, Text& out) const {
  for (const auto& [condition, block] : branches) {
    if (condition->evaluate(frame).truth()) return block.execute(frame, out);
  }
  return otherwise.execute(frame, out);
}

Flow Set::execute(const Frame& frame, Text&) const {
  if (value) {
    Value assigned = value->evaluate(frame);
    // {% set message = messages[i] %} in a loop over numbers.
    if (frame.rendering.turn_by_set) frame.rendering.turn_by_set = !frame.rendering.enter(assigned);
    target.assign(frame, std::move(assigned));
    return Flow::next;
  }
  Value written(body.write(frame));
  for (const auto& filter : filters) written = filter->apply(frame, written);
  target.assign(frame, std::move(written));
  return Flow::next;
}

Flow With::execute(const Frame& frame, Text& out) const {
  const InnerFrame inner(frame);
  for (const auto& [target, value] : variables) target.assign(inner, value->evaluate(frame));
  return body.execute(inner, out);
}

Flow FilterBlock::execute(const Frame& frame, Text& out) const {
  Value written(body.write(frame));
  for (const auto& filter : filters) written = filter->apply(frame, written);
  print(frame, written, out);
  return Flow::next;
}

Flow Generation::execute(const Frame& frame, Text& out) const {
  out.append(body.write(frame).generated());
  return Flow::next;
}

}  // namespace trainer::jinja
