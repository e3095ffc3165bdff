// A mapped file of JSON rows: one object a line, or one array of objects.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/files.h"

namespace trainer {

class RowFile {
 public:
  // Maps the file and finds its rows without parsing them. A byte order mark, CRLF line ends and blank lines
  // are accepted. Throws DataError for a file that is missing, empty, without rows, or an array that is not
  // closed.
  static RowFile open(const std::filesystem::path& path);

  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  std::string_view row(int64_t index) const;
  // Bytes of the mapping that follow the row: a parser may read them.
  size_t readable_after(int64_t index) const;
  // "file:line"; counts the lines before the row, so for messages only.
  std::string origin(int64_t index) const;

 private:
  struct Span {
    uint64_t offset, length;
  };
  explicit RowFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}
  void find_lines(size_t start);
  void find_elements(size_t start);
  std::string place(uint64_t offset) const;

  std::shared_ptr<const MappedFile> file_;
  std::vector<Span> rows_;
};

}  // namespace trainer
