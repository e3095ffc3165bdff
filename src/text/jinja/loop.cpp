// {% for %} and its variable `loop`.
#include "trainer/base/strings.h"

#include "text/jinja/function.h"
#include "text/jinja/nodes.h"
#include "text/jinja/operators.h"

namespace trainer::jinja {
namespace {

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

// What belongs to the turn of a message, while a loop goes through.
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

}  // namespace

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

}  // namespace trainer::jinja
