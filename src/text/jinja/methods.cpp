#include "text/jinja/methods.h"

#include <algorithm>
#include <array>

#include "trainer/base/strings.h"

#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace trainer::jinja {
namespace {

using ListOfNames = std::initializer_list<const char*>;

bool is_one_of(const std::string& name, ListOfNames names) {
  return std::ranges::find(names, name) != names.end();
}

Value forbidden(const Value& value, const std::string& name) {
  return Value::undefined(
      concat("access to attribute '", name, "' of '", value.type_name(), "' object is unsafe."));
}

class View : public Object {
 public:
  View(Value dict, std::string name) : dict_(std::move(dict)), name_(std::move(name)) {}
  std::string type_name() const override { return "dict_" + name_; }
  std::optional<int64_t> length() const override { return static_cast<int64_t>(dict_.dict().items().size()); }
  std::optional<List> iterate() override { return items(); }
  std::string repr() const override {
    return concat("dict_", name_, "(", trainer::jinja::repr(Value(items())).bytes(), ")");
  }

 private:
  List items() const {
    List out;
    for (const auto& [key, value] : dict_.dict().items())
      out.push_back(name_ == "keys" ? key : name_ == "values" ? value : Value::tuple({key, value}));
    return out;
  }
  const Value dict_;
  const std::string name_;
};

class Generator : public Object {
 public:
  Generator(List items, std::string type_name) : items_(std::move(items)), type_name_(std::move(type_name)) {}
  std::string type_name() const override { return type_name_; }
  std::optional<List> iterate() override { return std::exchange(items_, {}); }

 private:
  List items_;
  const std::string type_name_;
};

Value dict_get(const Value& dict, const Arguments& arguments) {
  if (!arguments.named.empty()) throw RenderError("dict.get() takes no keyword arguments");
  const Bound given("dict.get()", arguments, {"key", "default"}, 1);
  require_hashable(given.at(0));
  if (const Value* found = dict.dict().find(given.at(0))) return *found;
  return given[1] ? *given[1] : Value();
}

std::optional<Value> dict_method(const Value& dict, const std::string& name) {
  if (is_one_of(name, {"keys", "values", "items"})) {
    return function("method", [dict, name](const Arguments& arguments) {
      Bound("dict." + name + "()", arguments, {});
      return dict_view(dict, name);
    });
  }
  if (name == "get")
    return function("method", [dict](const Arguments& arguments) { return dict_get(dict, arguments); });
  if (name == "copy") return function("method", [dict](const Arguments&) { return dict; });
  if (is_one_of(name, {"clear", "pop", "popitem", "setdefault", "update"})) return forbidden(dict, name);
  if (name == "fromkeys") throw Unsupported("the method 'fromkeys' of a dict");
  return std::nullopt;
}

Value list_index(const Value& list, const Arguments& arguments) {
  const Bound given("index()", arguments, {"value"}, 1);
  const auto found =
      std::ranges::find_if(list.items(), [&](const Value& v) { return equal(v, given.at(0)); });
  if (found == list.items().end())
    throw RenderError(concat(repr(given.at(0)).bytes(), " is not in ", list.type_name()));
  return Value(static_cast<int64_t>(found - list.items().begin()));
}

std::optional<Value> list_method(const Value& list, const std::string& name) {
  if (name == "index")
    return function("method", [list](const Arguments& arguments) { return list_index(list, arguments); });
  if (name == "count") {
    return function("method", [list](const Arguments& arguments) {
      const Bound given("count()", arguments, {"value"}, 1);
      return Value(static_cast<int64_t>(
          std::ranges::count_if(list.items(), [&](const Value& v) { return equal(v, given.at(0)); })));
    });
  }
  if (list.is(Kind::tuple)) return std::nullopt;
  if (name == "copy") return function("method", [list](const Arguments&) { return Value(list.items()); });
  if (is_one_of(name, {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"}))
    return forbidden(list, name);
  return std::nullopt;
}

// The arguments of methods of a safe text are escaped in Python; where that changes nothing it need not be
// done.
void require_plain_arguments(const Text& self, const std::string& name, const Arguments& arguments) {
  if (!self.safe()) return;
  const auto plain = [](const Value& value) {
    return !value.is(Kind::text) || value.text().bytes().find_first_of("&<>'\"") == std::string::npos;
  };
  if (!std::ranges::all_of(arguments.positional, plain) || name == "format" || name == "join")
    throw Unsupported(concat("the method '", name, "' of a safe string with arguments that are escaped"));
}

std::optional<Value> bound_text_method(const Value& value, const std::string& name) {
  if (const TextMethod method = text_method(name)) {
    return function("method", [value, method, name](const Arguments& arguments) {
      require_plain_arguments(value.text(), name, arguments);
      return method(value.text(), arguments);
    });
  }
  if (is_one_of(name, {"encode", "expandtabs", "format_map", "isidentifier", "isnumeric", "maketrans",
                       "translate"}))
    throw Unsupported(concat("the method '", name, "' of a string"));
  return std::nullopt;
}

}  // namespace

Value dict_view(const Value& dict, const std::string& name) {
  return Value(std::shared_ptr<Object>(std::make_shared<View>(dict, name)));
}

Value generator(List items, std::string type_name) {
  return Value(std::shared_ptr<Object>(std::make_shared<Generator>(std::move(items), std::move(type_name))));
}

std::optional<Value> method_of(const Value& value, const std::string& name) {
  switch (value.kind()) {
    case Kind::text:
      return bound_text_method(value, name);
    case Kind::dict:
      return dict_method(value, name);
    case Kind::list:
    case Kind::tuple:
      return list_method(value, name);
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
      if (is_one_of(name,
                    {"real", "imag", "conjugate", "as_integer_ratio", "from_bytes", "to_bytes", "bit_length",
                     "bit_count", "numerator", "denominator", "hex", "fromhex", "is_integer"})) {
        throw Unsupported(concat("the attribute '", name, "' of a number"));
      }
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace trainer::jinja
