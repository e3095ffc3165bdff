// A mapped file of rows: JSON objects, one per line or all in one array; or a table (CSV, TSV).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_files.h"
#include "data/pooled_file.h"
#include "data/row_parser.h"

namespace trainer {

// The position of a row in its file, in bytes.
struct RowSpan {
  uint64_t offset, length;
};

class RowFile {
 public:
  // Reads the beginning. The ending .csv or .tsv makes it a table, whose first line shows the
  // separator, any other JSON. A byte order mark, CRLF
  // line ends and blank lines are accepted. `shown`: the name in messages, when that differs (the compressed
  // file). Throws DataError for a file that is missing, empty or without rows, and for a table with two
  // columns of the same name.
  static RowFile open(const std::filesystem::path& path, const std::filesystem::path& shown);

  const std::filesystem::path& shown() const { return shown_; }

  // Returns the content. It stays mapped for as long as the result, or a RowScanner, is held. Throws
  // DataError.
  std::shared_ptr<const MappedFile> map() const;
  // Parses a row as RowParser does. The parser refers to the content: hold it while the row is used. Throws
  // DataError.
  void parse(RowParser& parser, RowSpan row) const;
  const FileIdentity& identity() const { return identity_; }
  size_t bytes() const { return static_cast<size_t>(identity_.bytes); }

  // Returns "file:line" of the byte at `offset`; counts the lines before it.
  std::string place(uint64_t offset) const;
  int64_t line(uint64_t offset) const;

  // Throws DataError when the file at the path is no longer the one that was opened.
  void check_unchanged() const;

 private:
  friend class RowScanner;
  enum class Format { lines, array, table };
  RowFile(PooledFile file, const FileIdentity& identity, std::filesystem::path shown)
      : file_(std::move(file)), identity_(identity), shown_(std::move(shown)) {}
  // `separator`: the usual one of such files.
  void open_table(std::string_view text, size_t start, char separator);
  void open_json(std::string_view text, size_t start);
  [[noreturn]] void throw_changed() const;

  PooledFile file_;
  FileIdentity identity_;
  std::filesystem::path shown_;
  Format format_ = Format::lines;
  uint64_t first_row_ = 0;
  char separator_ = ',';
  std::vector<std::string> columns_;  // a table's
};

// Iterates over the rows of a file in order, without parsing them.
class RowScanner {
 public:
  explicit RowScanner(const RowFile& file) : file_(&file), content_(file.map()), at_(file.first_row_) {}

  // Returns false when there are no more rows. Throws DataError for an array that is not closed.
  bool next(RowSpan& row);

 private:
  bool next_line(RowSpan& row);
  bool next_element(RowSpan& row);

  const RowFile* file_;
  std::shared_ptr<const MappedFile> content_;
  uint64_t at_;
  bool ended_ = false;  // the array was closed
};

}  // namespace trainer
