// A mapped file of rows: JSON objects, one a line or all in one array; or a table (CSV, TSV).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/files.h"

#include "data/file_identity.h"
#include "data/row_parser.h"

namespace trainer {

// The bytes of a row.
struct RowSpan {
  uint64_t offset, length;
};

class RowFile {
 public:
  // Maps the file. A table by its name's ending (.csv, .tsv), else JSON; a byte order mark, CRLF line ends
  // and blank lines are accepted. `shown`: its name in messages, where that is another (the compressed file).
  // Throws DataError for a file that is missing, empty or without rows, and for a table whose header has a
  // name twice.
  static RowFile open(const std::filesystem::path& path, const std::filesystem::path& shown);

  const std::filesystem::path& shown() const { return shown_; }

  // Parses a row as RowParser does. Throws DataError.
  void parse(RowParser& parser, RowSpan row) const;
  const FileIdentity& identity() const { return identity_; }
  std::string_view content() const { return file_->text(); }
  std::string_view text(RowSpan row) const { return file_->text().substr(row.offset, row.length); }

  // "file:line" of the byte at `offset`; counts the lines before it.
  std::string place(uint64_t offset) const;
  int64_t line(uint64_t offset) const;

  // Throws DataError when what lies under the path is no longer what was mapped.
  void check_unchanged() const;

 private:
  friend class RowScanner;
  enum class Format { lines, array, table };
  RowFile(std::shared_ptr<const MappedFile> file, const FileIdentity& identity, std::filesystem::path shown)
      : file_(std::move(file)), identity_(identity), shown_(std::move(shown)) {}
  void open_table(size_t start, char separator);
  void open_json(size_t start);

  std::shared_ptr<const MappedFile> file_;
  FileIdentity identity_;
  std::filesystem::path shown_;
  Format format_ = Format::lines;
  uint64_t first_row_ = 0;
  char separator_ = ',';
  std::vector<std::string> columns_;  // of a table
};

// Goes through the rows of a file in their order, without parsing them.
class RowScanner {
 public:
  explicit RowScanner(const RowFile& file) : file_(&file), at_(file.first_row_) {}

  // Whether there was a further row. Throws DataError for an array that is not closed.
  bool next(RowSpan& row);

 private:
  bool next_line(RowSpan& row);
  bool next_element(RowSpan& row);

  const RowFile* file_;
  uint64_t at_;
  bool ended_ = false;  // an array was closed
};

}  // namespace trainer
