#include "commands/rows.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "commands/library.h"
#include "data/cache_folder.h"
#include "data/data_files.h"
#include "data/fields.h"
#include "data/row_file.h"
#include "data/unpack.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

// Counts the lines as it goes along: a place in the file asks for those before it.
class LineCounter {
 public:
  explicit LineCounter(std::string_view text) : text_(text) {}

  int64_t line_of(size_t offset) {
    line_ += std::count(text_.begin() + static_cast<ptrdiff_t>(at_),
                        text_.begin() + static_cast<ptrdiff_t>(offset), '\n');
    at_ = offset;
    return line_;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

void visit_file(const fs::path& path, const fs::path& cache, const RowsOptions::Visit& visit) {
  const RowFile file = RowFile::open(unpacked(path, cache), path);
  const auto content = file.map();
  LineCounter lines(content->text());
  RowScanner scanner(file);
  RowParser parser;
  for (RowSpan row{}; scanner.next(row);) {
    const std::string where = concat(path.string(), ":", lines.line_of(row.offset));
    std::string json;
    try {
      file.parse(parser, row);
      json = parser.json().dump();
    } catch (const DataError& error) {
      throw DataError(concat(where, ": ", error.what()));
    }
    visit(json, where);
  }
}

// The row with the text that a run has learned from in the field `text`.
std::string with_text(const std::string& json, const TextTemplate& input) {
  RowParser parser;
  parser.parse(json, 0);
  auto row = nlohmann::ordered_json::parse(json);
  row["text"] = input.apply(parser);
  return row.dump();
}

void read_for_command(RowsOptions& options) {
  if (options.input.empty()) return for_each_row(options.file, options.cache, options.visit);
  const TextTemplate input = TextTemplate::parse(options.input, "data.input");
  for_each_row(options.file, options.cache, [&](const std::string& json, const std::string& where) {
    std::string row;
    try {
      row = with_text(json, input);
    } catch (const DataError& error) {
      throw DataError(concat(where, ": ", error.what()));
    }
    options.visit(row, where);
  });
}

const InLibrary rows_in_library(+[](RowsOptions& options) { read_for_command(options); });

}  // namespace

void for_each_row(const std::string& file, const std::string& cache, const RowsOptions::Visit& visit) {
  for (const fs::path& path : data_files({file})) visit_file(path, cache_folder(cache), visit);
}

}  // namespace trainer
