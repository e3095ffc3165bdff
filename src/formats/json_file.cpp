#include "formats/json_file.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "formats/json_structure.h"
#include "formats/ordered_json.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxDepth = 64;  // writing a value is recursive
constexpr const char* kAdvice = "copy or download it again";

// Returns the line and column of a byte: "12:3".
std::string place(const std::string& text, size_t byte) {
  const auto end = text.begin() + static_cast<int64_t>(std::min(byte > 0 ? byte - 1 : 0, text.size()));
  const auto line_start = std::find(std::make_reverse_iterator(end), text.rend(), '\n').base();
  return concat(1 + std::count(text.begin(), end, '\n'), ":", 1 + (end - line_start));
}

template <class Json>
Json parse(const std::string& text) {
  if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) return parse_ordered_json(text);
  return Json::parse(text);
}

}  // namespace

template <class Json>
Json parse_json_object(const std::string& text, const std::string& where) {
  JsonStructure structure;
  structure.open = [&](int depth) {
    if (depth > kMaxDepth) throw FormatError(concat(where, ": is nested too deeply; ", kAdvice));
  };
  Json value;
  try {
    structure.walk(text);
    value = parse<Json>(text);
  } catch (const nlohmann::json::parse_error& e) {
    if (text.empty()) throw FormatError(concat(where, ": is empty; ", kAdvice));
    throw FormatError(concat(where, ":", place(text, e.byte),
                             ": is not valid JSON here; is the file complete? Copy or download it again"));
  } catch (const nlohmann::json::out_of_range&) {
    throw FormatError(concat(where, ": has a number that is too large; ", kAdvice));
  }
  if (!value.is_object()) throw FormatError(concat(where, ": is not a JSON object"));
  return value;
}

template nlohmann::json parse_json_object(const std::string& text, const std::string& where);
template nlohmann::ordered_json parse_json_object(const std::string& text, const std::string& where);

nlohmann::json read_json_object(const fs::path& path) {
  return parse_json_object<nlohmann::json>(read_file(path), path.string());
}

nlohmann::ordered_json read_ordered_json_object(const fs::path& path) {
  return parse_json_object<nlohmann::ordered_json>(read_file(path), path.string());
}

std::string ascii_json(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
}

void write_json(const fs::path& path, const nlohmann::json& value) {
  write_atomically(path, value.dump(2) + "\n");
}

void write_json(const fs::path& path, const nlohmann::ordered_json& value) {
  write_atomically(path, value.dump(2) + "\n");
}

}  // namespace trainer
