// Reads the fields of an object in a JSON file. Errors name the file, the key and what is expected.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {

class JsonReader {
 public:
  using Json = nlohmann::ordered_json;

  // Each message starts with `where`; both arguments must outlive the reader.
  JsonReader(const Json& object, const std::string& where) : object_(object), where_(where) {}

  // Throws FormatError when the key is missing or has the wrong type.
  template <class T>
  T required(const std::string& key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) throw FormatError(concat(where_, ": ", key, " is missing"));
    return convert<T>(key, *found);
  }

  // Leaves `value` unchanged when the key is missing. Throws FormatError when it has the wrong type.
  template <class T>
  void field(const char* key, T& value) const {
    const auto found = object_.find(key);
    if (found != object_.end()) value = convert<T>(key, *found);
  }

 private:
  [[noreturn]] void fail(const std::string& key, const char* expected) const {
    throw FormatError(concat(where_, ": ", key, ": is not ", expected));
  }

  template <class T>
  T convert(const std::string& key, const Json& value) const {
    if constexpr (std::is_same_v<T, int64_t>) {
      const bool fits = value.is_number_integer() &&
                        (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{INT64_MAX});
      if (!fits) fail(key, "a whole number");
      return value.get<int64_t>();
    } else if constexpr (std::is_same_v<T, double>) {
      if (!value.is_number()) fail(key, "a number");
      return value.get<double>();
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_boolean()) fail(key, "true or false");
      return value.get<bool>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!value.is_string()) fail(key, "a text");
      return value.get<std::string>();
    } else {
      return convert_more(key, value, static_cast<T*>(nullptr));
    }
  }

  template <class T>
  std::optional<T> convert_more(const std::string& key, const Json& value, std::optional<T>*) const {
    if (value.is_null()) return std::nullopt;
    return convert<T>(key, value);
  }
  template <class T>
  std::map<std::string, T> convert_more(const std::string& key, const Json& value,
                                        std::map<std::string, T>*) const {
    if (!value.is_object()) fail(key, "an object");
    std::map<std::string, T> items;
    for (const auto& [name, item] : value.items()) items[name] = convert<T>(concat(key, ".", name), item);
    return items;
  }
  template <class T>
  std::vector<T> convert_more(const std::string& key, const Json& value, std::vector<T>*) const {
    if (!value.is_array()) fail(key, "a list");
    std::vector<T> items;
    for (size_t i = 0; i < value.size(); i++) items.push_back(convert<T>(concat(key, "[", i, "]"), value[i]));
    return items;
  }
  // An object or a list with any content.
  Json convert_more(const std::string& key, const Json& value, Json*) const {
    if (!value.is_structured()) fail(key, "an object or a list");
    return value;
  }

  const Json& object_;
  const std::string& where_;
};

// Writes the fields, with the same interface, so that one function can list the fields for both directions.
class JsonFieldWriter {
 public:
  using Json = nlohmann::ordered_json;

  template <class T>
  void field(const char* key, const T& value) {
    object_[key] = value;
  }
  template <class T>
  void field(const char* key, const std::optional<T>& value) {
    object_[key] = value ? Json(*value) : Json();
  }

  const Json& object() const { return object_; }

 private:
  Json object_ = Json::object();
};

}  // namespace trainer
