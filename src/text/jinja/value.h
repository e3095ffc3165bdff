// The values of templates, which behave like Python's: their types, comparison and printing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/text.h"

namespace trainer::jinja {

// Finds the place of a key in a list of items by its hash.

inline uint64_t hash_of(std::string_view bytes) { return std::hash<std::string_view>()(bytes); }
// The finalizer of SplitMix64: neighboring numbers go to distant slots.
inline uint64_t hash_of(uint64_t number) {
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

// An open hash table of item numbers. Each probe is counted, so collisions use up the budget.
class HashIndex {
 public:
  bool empty() const { return hashes_.empty(); }

  // Returns the number of the item with this hash for which is_key(number) holds.
  template <class IsKey>
  std::optional<size_t> find(uint64_t hash, const IsKey& is_key) const {
    for (size_t slot = hash & mask();; slot = (slot + 1) & mask()) {
      Budget::spend(2);
      if (slots_[slot] == 0) return std::nullopt;
      const size_t item = slots_[slot] - 1;
      if (hashes_[item] == hash && is_key(item)) return item;
    }
  }

  // Adds the next item; its key must be new.
  void add(uint64_t hash) {
    hashes_.push_back(hash);
    if (2 * hashes_.size() > slots_.size()) {
      slots_.assign(std::max<size_t>(64, 2 * slots_.size()), 0);
      for (size_t item = 0; item < hashes_.size(); item++) enter(item);
    } else {
      enter(hashes_.size() - 1);
    }
  }

 private:
  size_t mask() const { return slots_.size() - 1; }
  void enter(size_t item) {
    size_t slot = hashes_[item] & mask();
    for (; slots_[slot] != 0; slot = (slot + 1) & mask()) Budget::spend(2);
    slots_[slot] = static_cast<uint32_t>(item + 1);
  }

  CountedVector<uint64_t> hashes_;  // hashes of the items
  CountedVector<uint32_t> slots_;   // the number of an item + 1; 0: free. Their count is a power of two
};

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
  int64_t integer() const;  // also for a bool
  double real() const;      // also for a bool and an int
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const List& items() const;  // for a list or a tuple
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }

  // Returns Python's bool(value).
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

  // The index of the message in the conversation, if this is one.
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
  // Returns Python's len(); none when it has no length.
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

// A value that can be called as a function.

class Function : public Object {
 public:
  using Body = std::function<Value(const Arguments&)>;
  Function(std::string type_name, Body body) : type_name_(std::move(type_name)), body_(std::move(body)) {}
  std::string type_name() const override { return type_name_; }
  bool callable() const override { return true; }
  Value call(Arguments arguments) override { return body_(arguments); }

 private:
  const std::string type_name_;
  const Body body_;
};

inline Value function(std::string type_name, Function::Body body) {
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(std::move(type_name), std::move(body))));
}

// Arguments of filters, tests and functions, bound to their parameters as Python does.

class Bound {
 public:
  // `names` are the parameters in order; the first `required` of them have no default. Throws RenderError
  // that names `function` if the arguments do not fit.
  Bound(const std::string& function, const Arguments& arguments, std::initializer_list<const char*> names,
        size_t required = 0);

  // The value of parameter i, or nullptr.
  const Value* operator[](size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  const Value& at(size_t i) const { return *values_[i]; }
  bool truth(size_t i, bool fallback) const { return values_[i] ? values_[i]->truth() : fallback; }
  int64_t integer(size_t i, int64_t fallback) const;
  // A string argument. Throws RenderError for any other type.
  Text text(size_t i, const char* fallback = "") const;

 private:
  std::string function_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace trainer::jinja
