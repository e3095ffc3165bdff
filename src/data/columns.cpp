#include "data/columns.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <sstream>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "data/cache_folder.h"
#include "data/data_files.h"
#include "data/row_file.h"
#include "data/row_parser.h"
#include "data/unpack.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRowsOfAFile = 200, kRowsInAll = 1000;
constexpr size_t kExample = 56;     // characters
constexpr size_t kMostInside = 12;  // an object with more is a table of its own

bool are_messages(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_object() &&
         (value[0].contains("role") || value[0].contains("from"));
}

// Messages in a table are the JSON text of a list.
bool are_messages_as_text(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '[') return false;
  return are_messages(Json::parse(text, nullptr, /*allow_exceptions=*/false));
}

std::string type_of(const Json& value) {
  if (value.is_string())
    return are_messages_as_text(value.get_ref<const std::string&>()) ? "messages" : "text";
  if (value.is_boolean()) return "true or false";
  if (value.is_number()) return "number";
  if (value.is_array()) return are_messages(value) ? "messages" : "list";
  return value.is_object() ? "object" : "empty";
}

// "user: Where is it? | assistant: There."
std::string example_of_messages(const Json& messages) {
  std::string text;
  for (const Json& message : messages) {
    if (!message.is_object()) continue;
    for (const char* key : {"role", "from"}) {
      if (message.contains(key) && message[key].is_string())
        text += (text.empty() ? "" : " | ") + message[key].get<std::string>() + ": ";
    }
    for (const char* key : {"content", "value"}) {
      if (message.contains(key) && message[key].is_string()) text += message[key].get<std::string>();
    }
  }
  return text;
}

std::string example_of(const Json& value) {
  if (are_messages(value)) return one_line(example_of_messages(value), kExample);
  if (value.is_string()) return one_line(value.get_ref<const std::string&>(), kExample);
  return one_line(value.dump(-1, ' ', false, Json::error_handler_t::replace), kExample);
}

bool is_number(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end;
}

void add_value(Columns& columns, const std::string& name, const Json& value) {
  auto column = std::ranges::find(columns.all, name, &Column::name);
  if (column == columns.all.end()) {
    columns.all.push_back({name, "empty", "", 0, 0, true});
    column = std::prev(columns.all.end());
  }
  const bool is_empty = value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
  if (is_empty) {
    if (value.is_string() && column->type == "empty") column->type = "text";
    return;
  }
  column->filled++;
  const std::string type = type_of(value);
  if (column->example.empty()) {
    column->example = example_of(value);
    column->type = type;
  } else if (column->type != type && (column->type == "number" || column->type == "true or false")) {
    column->type = type;  // the stricter need is that of the others
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    column->characters += static_cast<int64_t>(text.size());
    column->numbers = column->numbers && is_number(text);
  }
}

// The texts inside of an object, as templates can name them.
void add_inside(Columns& columns, const std::string& name, const Json& value) {
  if (!value.is_object() || value.size() > kMostInside) return;
  for (const auto& [key, inside] : value.items()) {
    const bool list = inside.is_array() && !inside.empty() && inside[0].is_string();
    if (inside.is_string()) add_value(columns, concat(name, ".", key), inside);
    if (list) add_value(columns, concat(name, ".", key, ".0"), inside[0]);
  }
}

class Looker {
 public:
  void file(const std::filesystem::path& path, const std::filesystem::path& cache) {
    int64_t left = std::min(kRowsOfAFile, kRowsInAll - columns_.rows);
    std::istringstream first(first_rows_before_unpacking(path, cache, {}));
    bool is_parquet = false;
    for (std::string line; left > 0 && std::getline(first, line); left--) {
      is_parquet = true;
      row(path.string(), [&] { parser_.parse(line, 0); });
    }
    if (is_parquet || left <= 0) return;
    const RowFile rows = RowFile::open(unpacked(path, cache), path);
    const std::shared_ptr<const MappedFile> held = rows.map();
    RowScanner scanner(rows);
    for (RowSpan span{}; left > 0 && scanner.next(span); left--)
      row(rows.place(span.offset), [&] { rows.parse(parser_, span); });
  }

  Columns take() {
    if (columns_.rows == 0 && problem_.empty()) problem_ = "the data hold no rows";
    if (columns_.rows == 0) throw of_family(ErrorCode::data_row, DataError(problem_));
    return std::move(columns_);
  }
  bool has_enough() const { return columns_.rows >= kRowsInAll; }

 private:
  void row(const std::string& place, const std::function<void()>& parse) {
    Json values;
    try {
      parse();
      values = parser_.json();
    } catch (const DataError& error) {
      if (problem_.empty()) problem_ = concat(place, ": ", error.what());
      return;
    }
    columns_.rows++;
    for (const auto& [name, value] : values.items()) {
      add_value(columns_, name, value);
      add_inside(columns_, name, value);
    }
  }

  Columns columns_;
  RowParser parser_;
  std::string problem_;  // of the first row that cannot be parsed
};

}  // namespace

const Column* Columns::find(const std::string& name) const {
  const auto found = std::ranges::find(all, name, &Column::name);
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> Columns::names() const {
  std::vector<std::string> names;
  for (const Column& column : all) names.push_back(column.name);
  return names;
}

std::vector<std::string> Columns::lines() const {
  constexpr size_t kShown = 40, kLongestName = 32;
  size_t name_width = 0, type_width = 0;
  std::vector<std::string> shown;
  for (const Column& column : all) {
    shown.push_back(one_line(column.name, kLongestName));
    name_width = std::max(name_width, count_characters(shown.back()));
    type_width = std::max(type_width, column.type.size());
  }
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(all.size(), kShown); i++) {
    const Column& column = all[i];
    const std::string some =
        column.filled < rows ? concat("  (in ", column.filled, " of ", rows, " rows)") : "";
    lines.push_back(concat(padded_right(shown[i], name_width), "  ", padded_right(column.type, type_width),
                           "  ", column.example, some));
  }
  if (all.size() > kShown) lines.push_back(concat("and ", all.size() - kShown, " more"));
  return lines;
}

Columns look_at_columns(const std::vector<DataSource>& sources, const std::string& cache) {
  Looker looker;
  const std::filesystem::path folder = cache_folder(cache);
  for (const DataSource& source : sources) {
    for (const std::filesystem::path& path : data_files(source)) {
      if (!looker.has_enough()) looker.file(path, folder);
    }
  }
  return looker.take();
}

}  // namespace trainer
