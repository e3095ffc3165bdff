#include <algorithm>

#include "trainer/base/strings.h"

#include "text/jinja/globals.h"
#include "text/jinja/nodes.h"
#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace trainer::jinja {
namespace {

void print(const Frame& frame, const Value& value, Text& out) {
  if (value.is(Kind::text)) {
    out.append(value.text(), frame.rendering.turn);
  } else {
    out.append(to_text(value), frame.rendering.turn);
  }
}

// {% for %} and its variable `loop`.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  explicit Loop(const List& items) : items_(items) {}
  void go_to(size_t index) { index_ = index; }

  std::string type_name() const override { return "LoopContext"; }
  std::optional<int64_t> length() const override { return static_cast<int64_t>(items_.size()); }
  std::string repr() const override { return concat("<LoopContext ", index_ + 1, "/", items_.size(), ">"); }
  bool callable() const override { return true; }
  Value call(Arguments) override {
    throw RenderError("The loop must have the 'recursive' marker to be called recursively.");
  }
  std::optional<Value> attribute(const std::string& name) override {
    const int64_t index = static_cast<int64_t>(index_), size = static_cast<int64_t>(items_.size());
    if (name == "index0") return Value(index);
    if (name == "index") return Value(index + 1);
    if (name == "revindex0") return Value(size - index - 1);
    if (name == "revindex") return Value(size - index);
    if (name == "first") return Value(index == 0);
    if (name == "last") return Value(index + 1 == size);
    if (name == "length") return Value(size);
    if (name == "depth0") return Value(int64_t{0});
    if (name == "depth") return Value(int64_t{1});
    if (name == "previtem") return index ? items_[index_ - 1] : Value::undefined("there is no previous item");
    if (name == "nextitem")
      return index + 1 < size ? items_[index_ + 1] : Value::undefined("there is no next item");
    if (name == "cycle") return bound([](Loop& loop, const Arguments& a) { return loop.cycle(a); });
    if (name == "changed") return bound([](Loop& loop, const Arguments& a) { return loop.changed(a); });
    return std::nullopt;
  }

 private:
  template <class Method>
  Value bound(const Method& method) {
    return function("method", [self = shared_from_this(), method](const Arguments& arguments) {
      return method(*self, arguments);
    });
  }
  Value cycle(const Arguments& arguments) const {
    if (arguments.positional.empty()) throw RenderError("no items for cycling given");
    return arguments.positional[index_ % arguments.positional.size()];
  }
  Value changed(const Arguments& arguments) {
    const Value now = Value::tuple(arguments.positional);
    const bool differs = !last_ || !equal(*last_, now);
    last_ = now;
    return Value(differs);
  }

  const List items_;
  size_t index_ = 0;
  std::optional<Value> last_;
};

// Marks text as the turn of the message that a loop is at, and puts the outer turn back at the end.
class Turns {
 public:
  explicit Turns(Rendering& rendering)
      : rendering_(rendering), outer_(rendering.turn), outer_by_set_(rendering.turn_by_set) {}
  ~Turns() {
    rendering_.turn = outer_;
    rendering_.turn_by_set = outer_by_set_;
  }
  void begin(const Value& item) const {
    rendering_.turn = outer_;
    rendering_.turn_by_set = !rendering_.enter(item) && item.is_integral();
  }

 private:
  Rendering& rendering_;
  const Origin outer_;
  const bool outer_by_set_;
};

// {% macro %} and {% call %}.
constexpr int kDeepestCall = 150;

struct CallDepth {
  explicit CallDepth(int& depth) : depth(depth) {
    if (++depth > kDeepestCall || stack_is_short()) {
      depth--;
      throw RenderError("macros call one another too deeply");
    }
  }
  ~CallDepth() { depth--; }
  int& depth;
};

class Macro : public Object {
 public:
  Macro(const MacroBody& body, const Frame& frame) : body_(body), frame_(frame) {}

  std::string type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  std::string repr() const override { return concat("<Macro '", body_.name, "'>"); }
  std::optional<Value> attribute(const std::string& name) override {
    if (name == "name") return text_value(body_.name);
    if (name == "arguments" || name == "catch_kwargs" || name == "catch_varargs" || name == "caller")
      throw Unsupported(concat("the attribute '", name, "' of a macro"));
    return std::nullopt;
  }

  Value call(Arguments arguments) override {
    Budget::spend(32);
    const CallDepth depth(frame_.rendering.depth);
    const InnerFrame inner(frame_);
    const Names& names = frame_.rendering.names;
    // Moves the argument with that name to the scope, if it was given.
    const auto take_named = [&](const std::string& argument, int variable) {
      Budget::spend(arguments.named.size());
      const auto found = std::ranges::find(arguments.named, argument, &std::pair<std::string, Value>::first);
      if (found == arguments.named.end()) return false;
      inner->scope.set(variable, found->second);
      arguments.named.erase(found);
      return true;
    };
    std::vector<const Expression*> defaults(body_.parameters.size());
    for (size_t i = 0; i < body_.parameters.size(); i++) {
      const auto& [name, fallback] = body_.parameters[i];
      if (i < arguments.positional.size()) {
        inner->scope.set(name, arguments.positional[i]);
      } else if (take_named(names[name], name)) {
        continue;
      } else if (fallback) {
        defaults[i] = fallback.get();
      } else {
        inner->scope.set(name, Value::undefined(concat("parameter '", names[name], "' was not provided")));
      }
    }
    if (body_.caller >= 0 && !take_named("caller", body_.caller))
      inner->scope.set(body_.caller, Value::undefined("No caller defined"));
    take_rest(arguments, inner->scope);
    for (size_t i = 0; i < defaults.size(); i++) {
      if (defaults[i]) inner->scope.set(body_.parameters[i].first, defaults[i]->evaluate(inner));
    }
    Text out;
    body_.body.execute(inner, out);
    return Value(std::move(out));
  }

 private:
  void take_rest(const Arguments& arguments, Scope& scope) const {
    const size_t known = std::min(body_.parameters.size(), arguments.positional.size());
    List more(arguments.positional.begin() + static_cast<std::ptrdiff_t>(known), arguments.positional.end());
    if (body_.kwargs >= 0) {
      Dict rest;
      for (const auto& [name, value] : arguments.named) rest.set(text_value(name), value);
      scope.set(body_.kwargs, Value(std::move(rest)));
    } else if (!arguments.named.empty()) {
      throw RenderError(
          concat("macro '", body_.name, "' takes no keyword argument '", arguments.named[0].first, "'"));
    }
    if (body_.varargs >= 0) {
      scope.set(body_.varargs, Value::tuple(std::move(more)));
    } else if (!more.empty()) {
      throw RenderError(
          concat("macro '", body_.name, "' takes not more than ", body_.parameters.size(), " argument(s)"));
    }
  }

  const MacroBody& body_;
  const Frame frame_;
};

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

Flow For::execute(const Frame& frame, Text& out) const {
  const Value looped = iterable->evaluate(frame);
  frame.at(line);
  List items = iterate(looped);
  if (condition) {
    List kept;
    for (const Value& item : items) {
      frame.at(line);
      const InnerFrame inner(frame);
      target.assign(inner, item);
      if (condition->evaluate(inner).truth()) kept.push_back(item);
    }
    items = std::move(kept);
  }
  if (items.empty()) return otherwise.execute(InnerFrame(frame), out);
  const auto loop = std::make_shared<Loop>(items);
  const Turns turns(frame.rendering);
  for (size_t i = 0; i < items.size(); i++) {
    frame.at(line);
    loop->go_to(i);
    turns.begin(items[i]);
    const InnerFrame inner(frame);
    inner->scope.set(loop_name, Value(std::shared_ptr<Object>(loop)));
    target.assign(inner, items[i]);
    if (body.execute(inner, out) == Flow::broken) break;
  }
  return Flow::next;
}

Flow MacroDefinition::execute(const Frame& frame, Text&) const {
  frame.rendering.macros++;
  frame.scope.set(name, Value(std::shared_ptr<Object>(std::make_shared<Macro>(macro, frame))));
  return Flow::next;
}

Flow CallBlock::execute(const Frame& frame, Text& out) const {
  frame.rendering.macros++;
  const Value body(std::shared_ptr<Object>(std::make_shared<Macro>(caller, frame)));
  const Value called = call->evaluate_called(frame);
  const auto& last = static_cast<const Call&>(*call->links.back());
  const Value written = last.apply_with(frame, called, {{"caller", body}});
  out.append(to_text(written), frame.rendering.turn);
  return Flow::next;
}

}  // namespace trainer::jinja
