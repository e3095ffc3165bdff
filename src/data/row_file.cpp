#include "data/row_file.h"

#include <algorithm>
#include <set>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/not_text.h"
#include "data/csv.h"

namespace trainer {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kExcelMark = "sep=";
constexpr std::string_view kBlank = " \t\r\n";
constexpr size_t kNone = std::string_view::npos;

// Returns the index after the closing quote of the string whose opening quote is at `at`, or npos.
size_t string_end(std::string_view text, size_t at) {
  for (at++; at < text.size(); at++) {
    if (text[at] == '\\') {
      at++;
    } else if (text[at] == '"') {
      return at + 1;
    }
  }
  return kNone;
}

// Returns the index of the comma or bracket after the array element that starts at `at`, or npos.
size_t element_end(std::string_view text, size_t at) {
  int64_t depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = string_end(text, at);
      continue;
    }
    if (depth == 0 && (c == ',' || c == ']')) return at;
    if (c == '{' || c == '[') depth++;
    if (c == '}' || c == ']') depth--;
    at++;
  }
  return kNone;
}

std::string_view without_line_end(std::string_view line) {
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

}  // namespace

RowFile RowFile::open(const std::filesystem::path& path, const std::filesystem::path& shown) {
  const FileIdentity identity = FileIdentity::of(path);
  RowFile rows(PooledFile(path, ExitCode::data), identity, shown);
  const std::shared_ptr<const MappedFile> content = rows.map();
  const std::string_view text = content->text();
  if (const std::string problem = not_text(text); !problem.empty())
    throw of_family(ErrorCode::data_file, DataError(concat(shown.string(), ": ", problem)));
  const size_t start = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  const std::string ending = path.extension().string();
  if (ending == ".csv" || ending == ".tsv") {
    rows.open_table(text, start, ending == ".csv" ? ',' : '\t');
  } else {
    rows.open_json(text, start);
  }
  return rows;
}

std::shared_ptr<const MappedFile> RowFile::map() const {
  try {
    std::shared_ptr<const MappedFile> content = file_.map();
    if (content->size() != bytes()) throw_changed();
    return content;
  } catch (const FormatError& e) {  // elsewhere a format error; here the file is user data
    throw DataError(e.what());
  }
}

void RowFile::open_json(std::string_view text, size_t start) {
  const size_t first = text.find_first_not_of(kBlank, start);
  if (first == kNone)
    throw of_family(
        ErrorCode::data_file,
        DataError(concat(shown_.string(), ": the file is empty; it must hold one JSON object a line")));
  format_ = text[first] == '[' ? Format::array : Format::lines;
  first_row_ = first;
  if (format_ == Format::lines) return;
  first_row_ = std::min(text.find_first_not_of(kBlank, first + 1), text.size());
  if (first_row_ < text.size() && text[first_row_] == ']')
    throw of_family(ErrorCode::data_file,
                    DataError(concat(shown_.string(), ": the array in this file holds no rows")));
}

void RowFile::open_table(std::string_view text, size_t start, char separator) {
  format_ = Format::table;
  size_t first = text.find_first_not_of("\r\n", start);
  if (first != kNone && text.substr(first).starts_with(kExcelMark))  // Excel's first line: sep=;
    first = text.find_first_not_of("\r\n", std::min(text.find('\n', first), text.size()));
  if (first == kNone)
    throw of_family(
        ErrorCode::data_file,
        DataError(concat(shown_.string(), ": the file is empty; its first line must name the columns")));
  separator_ = separator_of(text, first, separator);
  if (separator_ != separator)
    log::info(
        concat("data: ", shown_.string(), ": a ", separator_name(separator_), " separates its columns"));
  const size_t end = record_end(text, first, separator_);
  try {
    columns_ = split_record(without_line_end(text.substr(first, end - first)), separator_);
  } catch (const DataError& e) {
    throw of_family(ErrorCode::data_file,
                    DataError(concat(place(first), ": the names of the columns: ", e.what())));
  }
  std::set<std::string> seen;
  for (const std::string& column : columns_) {
    if (!column.empty() && !seen.insert(column).second)
      throw of_family(ErrorCode::data_file,
                      DataError(concat(place(first), ": two columns are called \"", column, "\"")));
  }
  first_row_ = text.find_first_not_of("\r\n", end);
  if (first_row_ >= text.size())
    throw of_family(ErrorCode::data_file,
                    DataError(concat(shown_.string(), ": has no rows below its header")));
}

void RowFile::parse(RowParser& parser, RowSpan row) const {
  // Parsing a longer row takes a multiple of its size in memory, in every thread.
  constexpr uint64_t kLongest = uint64_t{64} << 20;
  if (row.length > kLongest) {
    throw DataError(concat("the row has ", bytes_string(static_cast<int64_t>(row.length)), "; more than ",
                           bytes_string(kLongest), " are not read",
                           format_ == Format::lines ? " (are its line ends missing?)" : ""));
  }
  const std::shared_ptr<const MappedFile> content = map();
  const std::string_view text = content->text().substr(row.offset, row.length);
  if (format_ == Format::table) {
    parser.parse_record(text, separator_, columns_);
  } else {
    parser.parse(text, content->size() - row.offset - row.length);
  }
}

int64_t RowFile::line(uint64_t offset) const {
  const std::shared_ptr<const MappedFile> content = map();
  const std::string_view before = content->text().substr(0, offset);
  return 1 + std::count(before.begin(), before.end(), '\n');
}

std::string RowFile::place(uint64_t offset) const { return concat(shown_.string(), ":", line(offset)); }

void RowFile::check_unchanged() const {
  if (FileIdentity::of(file_.path()) != identity_) throw_changed();
}

void RowFile::throw_changed() const {
  throw of_family(ErrorCode::data_changed,
                  DataError(concat(shown_.string(), ": the file has changed since it was opened")));
}

bool RowScanner::next(RowSpan& row) {
  return file_->format_ == RowFile::Format::array ? next_element(row) : next_line(row);
}

// Also handles tables, whose rows may have line ends in quotes.
bool RowScanner::next_line(RowSpan& row) {
  const std::string_view text = content_->text();
  const bool table = file_->format_ == RowFile::Format::table;
  const size_t start = text.find_first_not_of(table ? "\r\n" : kBlank, at_);
  if (start == kNone) return false;
  const size_t end =
      table ? record_end(text, start, file_->separator_) : std::min(text.find('\n', start), text.size());
  const size_t last = table ? start + without_line_end(text.substr(start, end - start)).size()
                            : text.find_last_not_of(kBlank, end - 1) + 1;
  row = {start, last - start};
  at_ = end;
  return true;
}

bool RowScanner::next_element(RowSpan& row) {
  const std::string_view text = content_->text();
  const auto fail = [&](size_t offset, const char* what) {
    throw DataError(concat(file_->place(offset), ": malformed JSON: ", what));
  };
  if (at_ >= text.size()) {
    if (ended_) return false;
    fail(text.find('['), "the array that starts here is not closed (is the end of the file missing?)");
  }
  const size_t end = element_end(text, at_);
  if (end == kNone)
    fail(text.find('['), "the array that starts here is not closed (is the end of the file missing?)");
  if (end == at_) fail(at_, "an element of the array is missing here");
  row = {at_, text.find_last_not_of(kBlank, end - 1) + 1 - at_};
  if (text[end] == ',') {
    at_ = std::min(text.find_first_not_of(kBlank, end + 1), text.size());
    return true;
  }
  const size_t rest = text.find_first_not_of(kBlank, end + 1);
  if (rest != kNone) fail(rest, "there is more text after the end of the array");
  ended_ = true;
  at_ = text.size();
  return true;
}

}  // namespace trainer
