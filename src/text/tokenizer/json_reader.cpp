#include "text/tokenizer/json_reader.h"

#include <algorithm>
#include <limits>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "text/tokenizer/json_bounds.h"

namespace trainer {
namespace {

const nlohmann::json kNull;

std::string below(const std::string& where, const std::string& key) {
  return where + (where.ends_with(':') ? " " : ".") + key;
}

}  // namespace

JsonAt JsonAt::at(const std::string& key) const {
  const JsonAt member = get(key);
  if (&member.value == &kNull) fail(concat("'", key, "' is missing"));
  return member;
}

JsonAt JsonAt::get(const std::string& key) const {
  if (!value.is_object()) fail("an object is expected here");
  const auto found = value.find(key);
  return {found == value.end() ? kNull : *found, below(where, key)};
}

JsonAt JsonAt::item(size_t index) const { return {array().at(index), concat(where, "[", index, "]")}; }

std::string JsonAt::string() const {
  if (!value.is_string()) fail("a string is expected here");
  return value.get<std::string>();
}

bool JsonAt::boolean() const {
  if (!value.is_boolean()) fail("true or false is expected here");
  return value.get<bool>();
}

int32_t JsonAt::id() const {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > std::numeric_limits<int32_t>::max() - 1) {
    fail("a token id is expected here");
  }
  return value.get<int32_t>();
}

const nlohmann::json::array_t& JsonAt::array() const {
  if (!value.is_array()) fail("a list is expected here");
  return value.get_ref<const nlohmann::json::array_t&>();
}

void JsonAt::require_known(std::initializer_list<const char*> keys) const {
  if (!value.is_object()) fail("an object is expected here");
  for (const auto& [key, unused] : value.items()) {
    const bool known = std::ranges::any_of(keys, [&key = key](const char* name) { return key == name; });
    if (!known) fail(concat("'", key, "' is not supported"));
  }
}

void JsonAt::fail(const std::string& what) const {
  throw FormatError(concat(where, where.ends_with(':') ? " " : ": ", what));
}

nlohmann::json read_json(const std::filesystem::path& path) {
  constexpr int kDeepest = 64;  // nested steps are read by recursion
  const auto file = MappedFile::open(path);
  if (nested_too_deep(file->text(), kDeepest)) {
    throw FormatError(concat(path.string(), ": lists and objects are nested deeper than ", kDeepest,
                             " levels, which no tokenizer needs; copy or download it again"));
  }
  try {
    return nlohmann::json::parse(file->text());
  } catch (const nlohmann::json::exception& error) {
    throw FormatError(concat(path.string(), ": is not JSON: ", error.what()));
  }
}

}  // namespace trainer
