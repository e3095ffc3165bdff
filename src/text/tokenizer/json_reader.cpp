#include "text/tokenizer/json_reader.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/foreign_errors.h"
#include "formats/json_file.h"

namespace trainer {
namespace {

const nlohmann::json kNull;

std::string below(const std::string& where, const std::string& key) {
  return where + (where.ends_with(':') ? " " : ".") + key;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t skip_digits(std::string_view json, size_t at) {
  while (at < json.size() && is_digit(json[at])) at++;
  return at;
}

// Returns the index after the string that begins at `at`.
size_t end_of_string(std::string_view json, size_t at) {
  for (at++; at < json.size() && json[at] != '"'; at++) {
    if (json[at] == '\\') at++;
  }
  return std::min(at + 1, json.size());
}

// Returns the index after the number that begins at `at`; `at` itself if it is not a valid JSON number.
size_t end_of_number(std::string_view json, size_t at) {
  const size_t sign = json[at] == '-' ? 1 : 0, whole = skip_digits(json, at + sign);
  const size_t digits = whole - at - sign;
  if (digits == 0 || (digits > 1 && json[at + sign] == '0')) return at;
  size_t end = whole;
  if (end < json.size() && json[end] == '.') {
    end = skip_digits(json, whole + 1);
    if (end == whole + 1) return at;
  }
  if (end < json.size() && (json[end] == 'e' || json[end] == 'E')) {
    size_t exponent = end + 1;
    if (exponent < json.size() && (json[exponent] == '+' || json[exponent] == '-')) exponent++;
    end = skip_digits(json, exponent);
    if (end == exponent) return at;
  }
  return end;
}

bool is_integer(std::string_view number) { return number.find_first_of(".eE") == std::string_view::npos; }

bool fits(std::string_view number) {
  const char *begin = number.data(), *end = begin + number.size();
  if (!is_integer(number)) {
    double value = 0;
    // A number that is too small is read as 0, by Python too.
    const bool is_large = std::from_chars(begin, end, value).ec == std::errc::result_out_of_range &&
                          number.find("e-") == std::string_view::npos &&
                          number.find("E-") == std::string_view::npos;
    return !is_large;
  }
  int64_t value = 0;
  uint64_t positive = 0;
  return std::from_chars(begin, end, value).ec == std::errc() ||
         std::from_chars(begin, end, positive).ec == std::errc();
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
  // Both may have keys of the file. A byte 0 would end the message.
  throw FormatError(printable(concat(where, where.ends_with(':') ? " " : ": ", what)));
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
  } catch (const nlohmann::json::exception&) {
    // This reader is slower, but says where and what.
    return parse_json_object<nlohmann::json>(std::string(file->text()), path.string());
  }
}

std::optional<std::string_view> number_beyond_64_bits(std::string_view json, size_t from) {
  for (size_t at = from; at < json.size();) {
    if (json[at] == '"') {
      at = end_of_string(json, at);
    } else if (json[at] == '-' || is_digit(json[at])) {
      const size_t end = end_of_number(json, at);
      const std::string_view number = json.substr(at, end - at);
      if (!number.empty() && !fits(number)) return number;
      at = std::max(end, skip_digits(json, at + 1));  // skip an invalid number as a whole
    } else {
      at++;
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> integer_beyond_64_bits(std::string_view json) {
  auto number = number_beyond_64_bits(json);
  while (number && !is_integer(*number))
    number = number_beyond_64_bits(json, static_cast<size_t>(number->end() - json.begin()));
  return number;
}

bool nested_too_deep(std::string_view json, int deepest) {
  int depth = 0;
  for (size_t at = 0; at < json.size() && depth <= deepest;) {
    if (json[at] == '[' || json[at] == '{') depth++;
    if (json[at] == ']' || json[at] == '}') depth--;
    at = json[at] == '"' ? end_of_string(json, at) : at + 1;
  }
  return depth > deepest;
}

}  // namespace trainer
