// {% macro %} and {% call %}.
#include <algorithm>

#include "trainer/base/strings.h"

#include "text/jinja/nodes.h"

namespace trainer::jinja {
namespace {

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
