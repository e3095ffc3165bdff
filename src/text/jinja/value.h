// The values of templates, which behave like Python's: their types, comparison and printing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/hash_index.h"
#include "text/jinja/text.h"

namespace trainer::jinja {

// The template does something with its values that is an error in Python too.
struct RenderError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The template uses something that Python supports and we do not.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Value;
class Dict;
class Object;
using List = CountedVector<Value>;

struct Undefined {
  std::string why;  // "'x' is undefined"
};

enum class Kind { undefined, none, boolean, integer, real, text, list, tuple, dict, object };

// Cheap to copy. Lists, tuples, dicts and texts never change; only objects (namespace) do.
class Value {
 public:
  Value() = default;  // None
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(Text value);
  Value(const char* value) : Value(Text(value)) {}
  Value(List value);
  Value(Dict value);
  Value(std::shared_ptr<Object> value) : data_(std::move(value)) {}
  Value(const Value& other) : data_((Budget::spend(3), other.data_)) {}
  Value(Value&&) noexcept = default;
  Value& operator=(const Value& other) { return *this = Value(other); }
  Value& operator=(Value&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Value() {
    if (data_.index() >= kFirstWithValues) destroy();
  }
  static Value undefined(std::string why);
  static Value tuple(List items);

  Kind kind() const;
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_undefined() const { return is(Kind::undefined); }
  // bool, int or float.
  bool is_number() const;
  // bool or int.
  bool is_integral() const { return is(Kind::boolean) || is(Kind::integer); }
  bool is_object() const { return is(Kind::object); }

  // Each only for a value of that kind.
  const std::string& why_undefined() const;
  bool boolean() const { return std::get<bool>(data_); }
  int64_t integer() const;  // of a bool too
  double real() const;      // of a bool and an int too
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const List& items() const;  // of a list or a tuple
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }

  // What bool(value) says.
  bool truth() const;
  // Python's name of the type, as messages give it.
  std::string type_name() const;
  // The same object (`is` of Python).
  bool same_as(const Value& other) const;

 private:
  struct Tuple {
    std::shared_ptr<const List> items;
  };
  using Data = std::variant<std::monostate, std::shared_ptr<const Undefined>, bool, int64_t, double,
                            std::shared_ptr<const Text>, std::shared_ptr<const List>, Tuple,
                            std::shared_ptr<const Dict>, std::shared_ptr<Object>>;
  static constexpr size_t kFirstWithValues = 6;
  // Destroys what may hold other values. Values may be nested a million levels deep, so deep ones are
  // destroyed after their owner, not from within its destructor.
  void destroy() noexcept;
  Data data_;
};

// Keeps the order of insertion. A small one is searched item by item, a larger one by hashes.
class Dict {
 public:
  using Item = std::pair<Value, Value>;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // Returns whether the key is new. Throws RenderError for a key that Python cannot hash.
  bool set(Value key, Value value);
  const CountedVector<Item>& items() const { return items_; }

  // Which message of the conversation this is, if it is one.
  std::optional<size_t> message() const { return message_; }
  void set_message(size_t index) { message_ = index; }

 private:
  CountedVector<Item> items_;
  HashIndex index_;  // of the items; empty while there are few
  std::optional<size_t> message_;
};

struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Everything else: macros, methods, namespaces, ranges, views of dicts, generators, `loop`.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::optional<Value> attribute(const std::string& /*name*/) { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual Value call(Arguments arguments);
  // The items, as a loop gets them; none when there is nothing to loop over.
  virtual std::optional<List> iterate() { return std::nullopt; }
  // What len() says; none when it has no length.
  virtual std::optional<int64_t> length() const { return std::nullopt; }
  virtual std::string repr() const;
  // Lets go of all values in it.
  virtual void clear() {}

 private:
  const Charge charge_{160};
};

bool equal(const Value& a, const Value& b);
// Equal values have equal hashes.
uint64_t hash(const Value& value);
// Throws RenderError for what cannot be a key of a dict.
void require_hashable(const Value& value);
// a < b; throws RenderError for what Python does not order.
bool less(const Value& a, const Value& b, const char* sign);

// str(value) and repr(value).
Text to_text(const Value& value);
Text repr(const Value& value);
std::string float_repr(double value);

inline Value text_value(std::string bytes) { return Value(Text(std::move(bytes))); }

}  // namespace trainer::jinja
