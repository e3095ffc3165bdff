#include "formats/ordered_json.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kFew = 16;  // up to so many keys, comparing is faster than hashing

// Receives the events of nlohmann's parser.
class Builder {
 public:
  Json take() { return std::move(done_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t& value) { return add(std::move(value)); }
  bool key(std::string& name) {
    open_.back().key = std::move(name);
    return true;
  }
  bool start_object(size_t) {
    open_.emplace_back();
    return true;
  }
  bool start_array(size_t) {
    open_.emplace_back().is_array = true;
    return true;
  }
  bool end_object() { return close(open_.back().object.take()); }
  bool end_array() { return close(std::move(open_.back().array)); }
  template <class Error>
  bool parse_error(size_t, const std::string&, const Error& error) {
    throw error;
  }

 private:
  // An object or an array whose end has not been read yet.
  struct Open {
    bool is_array = false;
    Json array = Json::array();
    OrderedObject object;
    std::string key;  // of the object's next value
  };

  bool close(Json value) {
    open_.pop_back();
    return add(std::move(value));
  }
  bool add(Json value) {
    if (open_.empty()) {
      done_ = std::move(value);
    } else if (open_.back().is_array) {
      open_.back().array.push_back(std::move(value));
    } else {
      open_.back().object.set(std::move(open_.back().key), std::move(value));
    }
    return true;
  }

  std::vector<Open> open_;  // the outermost first
  Json done_;
};

}  // namespace

void OrderedObject::set(std::string key, Json value) {
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

Json OrderedObject::take() {
  places_.clear();
  return std::exchange(object_, Json::object());
}

Json parse_ordered_json(std::string_view text) {
  Builder builder;
  Json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace trainer
