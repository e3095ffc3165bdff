// JSON objects that keep the order of their keys, in linear time also for very many keys. The parser of
// nlohmann::ordered_json compares each new key with all others of its object.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include <nlohmann/json.hpp>

namespace trainer {

// Builds an object. Finds keys by hash as soon as there are more than a few.
class OrderedObject {
 public:
  using Json = nlohmann::ordered_json;

  // Adds a key at the end. If it exists, its value is replaced and its place stays, as in Python.
  void set(std::string key, Json value);
  // Returns the object and leaves this one empty.
  Json take();

 private:
  Json object_ = Json::object();
  std::unordered_map<std::string, size_t> places_;  // of the keys; empty while there are few
};

// Returns what nlohmann::ordered_json::parse() returns, and throws the same: its parse_error or out_of_range.
nlohmann::ordered_json parse_ordered_json(std::string_view text);

}  // namespace trainer
