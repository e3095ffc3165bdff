// Builds a JSON object that keeps the order of its keys, also when it has very many.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

namespace trainer {

// nlohmann::ordered_json compares a new key with all others. This class finds keys by hash as soon as there
// are more than a few.
class OrderedObject {
 public:
  using Json = nlohmann::ordered_json;

  // Adds a key at the end. If it exists, its value is replaced and its place stays, as in Python.
  void set(std::string key, Json value) {
    auto& members = object_.get_ref<Json::object_t&>();
    if (members.size() < kFew) {
      object_[std::move(key)] = std::move(value);
      return;
    }
    for (size_t i = places_.size(); i < members.size(); i++) places_.emplace(members.data()[i].first, i);
    const auto [place, is_new] = places_.emplace(key, members.size());
    if (is_new) {
      members.emplace_back(std::move(key), std::move(value));
    } else {
      members.data()[place->second].second = std::move(value);
    }
  }
  Json take() { return std::move(object_); }

 private:
  static constexpr size_t kFew = 16;
  Json object_ = Json::object();
  std::unordered_map<std::string, size_t> places_;  // of the keys; empty while there are few
};

}  // namespace trainer
