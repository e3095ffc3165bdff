#include "text/jinja/globals.h"

#include <algorithm>
#include <map>

#include "trainer/base/strings.h"

#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace trainer::jinja {
namespace {

constexpr int64_t kLongestRange = 100'000;  // jinja2's sandbox has the same bound

class Range : public Object {
 public:
  Range(int64_t start, int64_t stop, int64_t step) : start_(start), stop_(stop), step_(step) {
    if (*length() > kLongestRange)
      throw RenderError("Range too big. The sandbox blocks ranges larger than 100000.");
  }
  std::string type_name() const override { return "range"; }
  std::optional<int64_t> length() const override {
    const __int128 span =
        step_ > 0 ? static_cast<__int128>(stop_) - start_ : static_cast<__int128>(start_) - stop_;
    const __int128 step = step_ > 0 ? step_ : -static_cast<__int128>(step_);
    if (span <= 0) return 0;
    return static_cast<int64_t>(std::min((span + step - 1) / step, static_cast<__int128>(INT64_MAX)));
  }
  std::optional<List> iterate() override {
    List items;
    const int64_t count = *length();
    Budget::spend(2 * static_cast<size_t>(count));
    items.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; i++) items.push_back(Value(start_ + i * step_));
    return items;
  }
  std::string repr() const override {
    return concat("range(", start_, ", ", stop_, step_ == 1 ? "" : concat(", ", step_), ")");
  }
  std::optional<Value> attribute(const std::string& name) override {
    if (name == "start") return Value(start_);
    if (name == "stop") return Value(stop_);
    if (name == "step") return Value(step_);
    if (name == "count" || name == "index") throw Unsupported(concat("the method '", name, "' of a range"));
    return std::nullopt;
  }

 private:
  const int64_t start_, stop_, step_;
};

Value range(const Arguments& arguments) {
  const Bound given("range()", {arguments.positional, {}}, {"start", "stop", "step"}, 1);
  if (!arguments.named.empty()) throw RenderError("range() takes no keyword arguments");
  for (const Value& value : arguments.positional) {
    if (value.is_undefined()) throw RenderError(value.why_undefined());
  }
  const int64_t first = given.integer(0, 0), step = given.integer(2, 1);
  if (step == 0) throw RenderError("range() arg 3 must not be zero");
  const bool one = !given[1];
  const auto made = std::make_shared<Range>(one ? 0 : first, one ? first : given.integer(1, 0), step);
  return Value(std::shared_ptr<Object>(made));
}

Dict dict_of(const Arguments& arguments) {
  Dict out;
  if (arguments.positional.size() > 1) throw RenderError("dict expected at most 1 argument");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is_undefined()) throw RenderError(from.why_undefined());
    if (from.is(Kind::dict)) {
      out = from.dict();
    } else {
      for (const Value& pair : iterate(from)) {
        const List parts = iterate(pair);
        if (parts.size() != 2) throw RenderError("a sequence of pairs is needed to make a dict");
        out.set(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) out.set(text_value(name), value);
  return out;
}

class Namespace : public Object {
 public:
  explicit Namespace(const Dict& values) {
    for (const auto& [name, value] : values.items()) {
      if (!name.is(Kind::text)) throw Unsupported("a namespace with names that are not strings");
      set(name.text().bytes(), value);
    }
  }
  void set(const std::string& name, Value value) {
    if (name.starts_with('_')) {
      throw RenderError(concat(
          "chat templates cannot store underscore-prefixed attributes on a namespace, but got '", name, "'"));
    }
    Budget::spend_bytes(128 + name.size());
    values_[name] = std::move(value);
  }
  void clear() override { values_.clear(); }
  std::string type_name() const override { return "TemplateNamespace"; }
  std::optional<Value> attribute(const std::string& name) override {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<std::string, Value> values_;
};

Value raise_exception(const Arguments& arguments) {
  const Bound given("raise_exception()", arguments, {"message"}, 1);
  throw RaisedByTemplate(to_text(given.at(0)).bytes());
}

Value strftime_now(const Arguments& arguments, const Moment& moment) {
  const Bound given("strftime_now()", arguments, {"format"}, 1);
  constexpr size_t kLongest = 1000;
  const std::string format = given.text(0).bytes();
  if (format.size() > kLongest) throw RenderError("strftime_now() got a format of more than 1,000 bytes");
  Budget::spend(200 + 64 * format.size());
  return text_value(moment.formatted(format));
}

}  // namespace

std::optional<Value> find_global(const std::string& name, const Moment& moment) {
  static const std::map<std::string, Function::Body> functions = {
      {"range", range},
      {"namespace",
       [](const Arguments& a) {
         const std::shared_ptr<Object> made = std::make_shared<Namespace>(dict_of(a));
         Budget::keep(made);
         return Value(made);
       }},
      {"dict", [](const Arguments& a) { return Value(dict_of(a)); }},
      {"raise_exception", raise_exception},
  };
  if (const auto found = functions.find(name); found != functions.end())
    return function("function", found->second);
  if (name == kAsksTheClock)
    return function("function", [moment](const Arguments& a) { return strftime_now(a, moment); });
  if (name == "lipsum" || name == "cycler" || name == "joiner")
    throw Unsupported(concat("the function '", name, "'"));
  return std::nullopt;
}

void set_in_namespace(const Value& target, const std::string& name, Value value) {
  auto* place = target.is_object() ? dynamic_cast<Namespace*>(&target.object()) : nullptr;
  if (!place) throw RenderError("cannot assign attribute on non-namespace object");
  place->set(name, std::move(value));
}

}  // namespace trainer::jinja
