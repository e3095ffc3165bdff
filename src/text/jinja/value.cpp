#include "text/jinja/value.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "trainer/base/strings.h"

namespace trainer::jinja {
namespace {

// Adds the cost of the object itself; its type counts the contents.
template <class T>
struct Held : T {
  explicit Held(T value) : T(std::move(value)) {}
  const Charge charge{sizeof(T) + 64};
};

template <class T>
std::shared_ptr<const T> held(T value) {
  return std::make_shared<const Held<T>>(std::move(value));
}

}  // namespace

Value::Value(Text value) : data_(held(std::move(value))) {}
Value::Value(List value) : data_(held(std::move(value))) {}
Value::Value(Dict value) : data_(held(std::move(value))) {}

void Value::destroy() noexcept {
  constexpr int kDeepest = 50;
  static thread_local int depth = 0;
  static thread_local std::vector<Data> later;
  if (depth >= kDeepest) {
    later.push_back(std::move(data_));
    return;
  }
  depth++;
  data_ = std::monostate();
  depth--;
  while (depth == 0 && !later.empty()) {
    depth++;
    Data next = std::move(later.back());
    later.pop_back();
    next = std::monostate();
    depth--;
  }
}

Value Value::undefined(std::string why) {
  Value out;
  constexpr size_t kLongest = 300;
  Budget::spend_bytes(128);
  if (why.size() > kLongest) why = one_line(why, kLongest);
  out.data_ = std::make_shared<const Undefined>(Undefined{std::move(why)});
  return out;
}

Value Value::tuple(List items) {
  Value out;
  out.data_ = Tuple{held(std::move(items))};
  return out;
}

Kind Value::kind() const {
  constexpr Kind kinds[] = {Kind::none, Kind::undefined, Kind::boolean, Kind::integer, Kind::real,
                            Kind::text, Kind::list,      Kind::tuple,   Kind::dict,    Kind::object};
  return kinds[data_.index()];
}

bool Value::is_number() const { return is_integral() || is(Kind::real); }

const std::string& Value::why_undefined() const {
  return std::get<std::shared_ptr<const Undefined>>(data_)->why;
}

int64_t Value::integer() const { return is(Kind::boolean) ? boolean() : std::get<int64_t>(data_); }

double Value::real() const {
  return is(Kind::real) ? std::get<double>(data_) : static_cast<double>(integer());
}

const List& Value::items() const {
  return is(Kind::tuple) ? *std::get<Tuple>(data_).items : *std::get<std::shared_ptr<const List>>(data_);
}

bool Value::truth() const {
  switch (kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return integer() != 0;
    case Kind::real:
      return real() != 0;
    case Kind::text:
      return !text().empty();
    case Kind::list:
    case Kind::tuple:
      return !items().empty();
    case Kind::dict:
      return !dict().items().empty();
    case Kind::object:
      return object().length().value_or(1) != 0;
  }
  return false;
}

std::string Value::type_name() const {
  switch (kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return text().safe() ? "Markup" : "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::object:
      return object().type_name();
  }
  return "";
}

bool Value::same_as(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::none:
      return true;
    case Kind::boolean:
      return boolean() == other.boolean();
    case Kind::object:
      return &object() == &other.object();
    case Kind::list:
      return &items() == &other.items();
    case Kind::dict:
      return &dict() == &other.dict();
    case Kind::undefined:
      return &why_undefined() == &other.why_undefined();
    default:
      throw Unsupported(concat("whether two values of type ", type_name(), " are the same object"));
  }
}

const Value* Dict::find(const Value& key) const {
  const auto is_key = [&](const Item& item) { return equal(item.first, key); };
  if (!index_.empty()) {
    const auto found = index_.find(hash(key), [&](size_t i) { return is_key(items_[i]); });
    return found ? &items_[*found].second : nullptr;
  }
  const auto found = std::ranges::find_if(items_, is_key);
  return found == items_.end() ? nullptr : &found->second;
}

const Value* Dict::find(std::string_view key) const {
  const auto is_key = [&](const Item& item) {
    return item.first.is(Kind::text) && item.first.text().bytes() == key;
  };
  Budget::spend_bytes(key.size());
  if (!index_.empty()) {
    const auto found = index_.find(hash_of(key), [&](size_t i) { return is_key(items_[i]); });
    return found ? &items_[*found].second : nullptr;
  }
  Budget::spend(items_.size());
  const auto found = std::ranges::find_if(items_, is_key);
  return found == items_.end() ? nullptr : &found->second;
}

void require_hashable(const Value& value) {
  Budget::spend(4);
  const bool view =
      value.is_object() && (value.type_name() == "dict_keys" || value.type_name() == "dict_items");
  if (value.is(Kind::list) || value.is(Kind::dict) || view)
    throw RenderError(concat("unhashable type: '", value.type_name(), "'"));
  if (!value.is(Kind::tuple)) return;
  const ValueDepth depth;
  std::ranges::for_each(value.items(), require_hashable);
}

bool Dict::set(Value key, Value value) {
  constexpr size_t kFew = 16;
  require_hashable(key);
  if (const Value* found = find(key)) {
    *const_cast<Value*>(found) = std::move(value);
    return false;
  }
  items_.emplace_back(std::move(key), std::move(value));
  if (!index_.empty()) {
    index_.add(hash(items_.back().first));
  } else if (items_.size() > kFew) {
    for (const Item& item : items_) index_.add(hash(item.first));
  }
  return true;
}

Value Object::call(Arguments) { throw RenderError(concat("'", type_name(), "' object is not callable")); }

std::string Object::repr() const {
  throw Unsupported(concat("the text of a ", type_name(), " (it is another one in every run of Python)"));
}
namespace {

bool equal_items(const List& a, const List& b) {
  const ValueDepth depth;
  return std::ranges::equal(a, b, [](const Value& x, const Value& y) { return equal(x, y); });
}

bool equal_dicts(const Dict& a, const Dict& b) {
  const ValueDepth depth;
  return a.items().size() == b.items().size() && std::ranges::all_of(a.items(), [&](const Dict::Item& item) {
           const Value* other = b.find(item.first);
           return other && equal(item.second, *other);
         });
}

// Returns -1, 0 or 1; nullopt if one of them is NaN.
std::optional<int> compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
  }
  // Integers up to 2^53 are exact as double, and long double holds all of int64.
  const auto exact = [](const Value& v) {
    return v.is(Kind::real) ? static_cast<long double>(v.real()) : static_cast<long double>(v.integer());
  };
  const long double x = exact(a), y = exact(b);
  if (std::isnan(x) || std::isnan(y)) return std::nullopt;
  return x < y ? -1 : x > y ? 1 : 0;
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  Budget::spend(4);
  if (a.is(Kind::integer) && b.is(Kind::integer)) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      Budget::spend_bytes(std::min(a.text().bytes().size(), b.text().bytes().size()));
      return a.text().bytes() == b.text().bytes();
    case Kind::list:
    case Kind::tuple:
      return equal_items(a.items(), b.items());
    case Kind::dict:
      return equal_dicts(a.dict(), b.dict());
    default:
      return &a.object() == &b.object();
  }
}

uint64_t hash(const Value& value) {
  Budget::spend(4);
  switch (value.kind()) {
    case Kind::boolean:
    case Kind::integer:
      return hash_of(static_cast<uint64_t>(value.integer()));
    case Kind::real: {
      const double real = value.real();
      // A float that is an integer equals that integer.
      if (std::fabs(real) < 0x1p63 && real == std::floor(real))
        return hash_of(static_cast<uint64_t>(static_cast<int64_t>(real)));
      return hash_of(std::bit_cast<uint64_t>(real));
    }
    case Kind::text:
      Budget::spend_bytes(value.text().bytes().size());
      return hash_of(value.text().bytes());
    case Kind::tuple: {
      const ValueDepth depth;
      uint64_t all = 1;
      for (const Value& item : value.items()) all = hash_of(all + hash(item));
      return all;
    }
    case Kind::object:
      return hash_of(reinterpret_cast<uintptr_t>(&value.object()));
    default:
      return static_cast<uint64_t>(value.kind());
  }
}

bool less(const Value& a, const Value& b, const char* sign) {
  Budget::spend(8);
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) throw RenderError(value->why_undefined());
  }
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.kind() == b.kind()) {
    // UTF-8 sorts like code points.
    if (a.is(Kind::text)) {
      Budget::spend_bytes(std::min(a.text().bytes().size(), b.text().bytes().size()));
      return a.text().bytes() < b.text().bytes();
    }
    if (a.is(Kind::list) || a.is(Kind::tuple)) {
      const ValueDepth depth;
      const List &x = a.items(), &y = b.items();
      for (size_t i = 0; i < std::min(x.size(), y.size()); i++) {
        if (!equal(x[i], y[i])) return less(x[i], y[i], sign);
      }
      return x.size() < y.size();
    }
  }
  throw RenderError(concat("'", sign, "' not supported between instances of '", a.type_name(), "' and '",
                           b.type_name(), "'"));
}

Bound::Bound(const std::string& function, const Arguments& arguments,
             std::initializer_list<const char*> names, size_t required)
    : function_(function), values_(names.size()) {
  Budget::spend(8 + 4 * names.size() + 4 * arguments.named.size());
  if (arguments.positional.size() > names.size()) {
    throw RenderError(concat(function, " takes at most ", names.size(), " arguments (",
                             arguments.positional.size(), " given)"));
  }
  std::ranges::copy(arguments.positional, values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      throw RenderError(concat(function, " got an unexpected keyword argument '", name, "'"));
    }
    std::optional<Value>& place = values_[static_cast<size_t>(found - names.begin())];
    if (place) throw RenderError(concat(function, " got multiple values for argument '", name, "'"));
    place = value;
  }
  for (size_t i = 0; i < required; i++) {
    if (!values_[i]) throw RenderError(concat(function, " misses its argument '", names.begin()[i], "'"));
  }
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
  if (!values_[i]) return fallback;
  if (values_[i]->is_integral()) return values_[i]->integer();
  throw RenderError(concat(function_, " wants an integer, not '", values_[i]->type_name(), "'"));
}

Text Bound::text(size_t i, const char* fallback) const {
  if (!values_[i]) return Text(fallback);
  if (values_[i]->is(Kind::text)) return values_[i]->text();
  throw RenderError(concat(function_, " wants a string, not '", values_[i]->type_name(), "'"));
}

}  // namespace trainer::jinja
