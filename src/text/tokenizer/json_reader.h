// Reads JSON files strictly: an unknown key is an error. Errors name the file and the key.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace trainer {

// A JSON value and its place ("DIR/tokenizer.json: model.vocab") for messages.
struct JsonAt {
  const nlohmann::json& value;
  std::string where;

  // The member `key`. Throws FormatError if this is not an object or has no such member.
  JsonAt at(const std::string& key) const;
  // The same, or JSON null if the member is missing.
  JsonAt get(const std::string& key) const;
  JsonAt item(size_t index) const;

  bool is_null() const { return value.is_null(); }
  std::string string() const;
  bool boolean() const;
  int32_t id() const;  // an integer >= 0 that fits in int32
  const nlohmann::json::array_t& array() const;

  // Throws FormatError unless this is an object whose members all have one of these names.
  void require_known(std::initializer_list<const char*> keys) const;
  // Throws FormatError "WHERE: WHAT".
  [[noreturn]] void fail(const std::string& what) const;
};

// The parsed content of a file. Throws FormatError if it cannot be read or is not JSON.
nlohmann::json read_json(const std::filesystem::path& path);

// Checks of a row's JSON for things that nlohmann::json accepts with a wrong result or a crash.

// Returns the first number outside of strings, at or after byte `from`, that fits neither in int64 or uint64
// (an integer) nor in double (any other number). Text that is not a valid JSON number is skipped. The view is
// a part of `json`.
std::optional<std::string_view> number_beyond_64_bits(std::string_view json, size_t from = 0);

// Returns the first integer outside of strings that does not fit in int64 or uint64, or nullopt.
// nlohmann::json would round it to a double.
std::optional<std::string_view> integer_beyond_64_bits(std::string_view json);

// Returns whether lists and objects are nested deeper than `deepest`. Copying or writing such JSON would
// overflow the stack.
bool nested_too_deep(std::string_view json, int deepest = 1000);

}  // namespace trainer
