#include "formats/json_file.h"

#include <algorithm>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

// "12:3", the line and column of a byte.
std::string place(const std::string& text, size_t byte) {
  const auto end = text.begin() + static_cast<int64_t>(std::min(byte > 0 ? byte - 1 : 0, text.size()));
  const auto line_start = std::find(std::make_reverse_iterator(end), text.rend(), '\n').base();
  return concat(1 + std::count(text.begin(), end, '\n'), ":", 1 + (end - line_start));
}

template <class Json>
Json parse_object(const fs::path& path) {
  const std::string text = read_file(path);
  Json value;
  try {
    value = Json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    if (text.empty()) throw FormatError(concat(path.string(), ": is empty; copy or download it again"));
    throw FormatError(concat(path.string(), ":", place(text, e.byte),
                             ": is not valid JSON here; is the file complete? Copy or download it again"));
  }
  if (!value.is_object()) throw FormatError(concat(path.string(), ": is not a JSON object"));
  return value;
}

}  // namespace

nlohmann::json read_json_object(const fs::path& path) { return parse_object<nlohmann::json>(path); }

nlohmann::ordered_json read_ordered_json_object(const fs::path& path) {
  return parse_object<nlohmann::ordered_json>(path);
}

void write_json(const fs::path& path, const nlohmann::json& value) {
  write_atomically(path, value.dump(2) + "\n");
}

void write_json(const fs::path& path, const nlohmann::ordered_json& value) {
  write_atomically(path, value.dump(2) + "\n");
}

}  // namespace trainer
