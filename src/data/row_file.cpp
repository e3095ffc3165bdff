#include "data/row_file.h"

#include <algorithm>
#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kBlank = " \t\r\n";

std::shared_ptr<const MappedFile> map_data(const std::filesystem::path& path) {
  try {
    return MappedFile::open(path);
  } catch (const FormatError& e) {  // what is a format error of a model's file is the user's data here
    throw DataError(e.what());
  }
}

// One past the closing quote of the string whose opening quote is at `at`, or npos.
size_t string_end(std::string_view text, size_t at) {
  for (at++; at < text.size(); at++) {
    if (text[at] == '\\') {
      at++;
    } else if (text[at] == '"') {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

// One past the array element that starts at `at`: the place of the comma or bracket after it, or npos.
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
  return std::string_view::npos;
}

}  // namespace

RowFile RowFile::open(const std::filesystem::path& path) {
  RowFile rows(map_data(path));
  const std::string_view text = rows.file_->text();
  const size_t start = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  const size_t first = text.find_first_not_of(kBlank, start);
  if (first == std::string_view::npos) {
    throw DataError(concat(path.string(), ": the file is empty; it must hold one JSON object a line"));
  }
  if (text[first] == '[') {
    rows.find_elements(first);
  } else {
    rows.find_lines(first);
  }
  if (rows.rows_.empty()) throw DataError(concat(path.string(), ": the array in this file holds no rows"));
  rows.rows_.shrink_to_fit();
  return rows;
}

void RowFile::find_lines(size_t start) {
  const std::string_view text = file_->text();
  while ((start = text.find_first_not_of(kBlank, start)) != std::string_view::npos) {
    const size_t newline = std::min(text.find('\n', start), text.size());
    const size_t last = text.find_last_not_of(kBlank, newline - 1);
    rows_.push_back({start, last + 1 - start});
    start = newline;
  }
}

void RowFile::find_elements(size_t start) {
  const std::string_view text = file_->text();
  const auto fail = [&](size_t offset, const char* what) {
    throw DataError(concat(place(offset), ": ", what));
  };
  size_t at = text.find_first_not_of(kBlank, start + 1);
  const bool no_elements = at != std::string_view::npos && text[at] == ']';
  while (!no_elements) {
    const size_t end = at == std::string_view::npos ? at : element_end(text, at);
    if (end == std::string_view::npos)
      fail(start, "malformed JSON: the array that starts here is not closed");
    if (end == at) fail(at, "malformed JSON: an element of the array is missing here");
    const size_t last = text.find_last_not_of(kBlank, end - 1);
    rows_.push_back({at, last + 1 - at});
    at = end;
    if (text[at] == ']') break;
    at = text.find_first_not_of(kBlank, at + 1);
  }
  const size_t rest = text.find_first_not_of(kBlank, at + 1);
  if (rest != std::string_view::npos)
    fail(rest, "malformed JSON: there is more after the array that is the file");
}

std::string_view RowFile::row(int64_t index) const {
  const Span span = rows_[static_cast<size_t>(index)];
  return file_->text().substr(span.offset, span.length);
}

size_t RowFile::readable_after(int64_t index) const {
  const Span span = rows_[static_cast<size_t>(index)];
  return file_->size() - span.offset - span.length;
}

std::string RowFile::origin(int64_t index) const { return place(rows_[static_cast<size_t>(index)].offset); }

std::string RowFile::place(uint64_t offset) const {
  const std::string_view before = file_->text().substr(0, offset);
  return concat(file_->path().string(), ":", 1 + std::count(before.begin(), before.end(), '\n'));
}

}  // namespace trainer
