// Files: mapped for reading, written atomically (a reader sees the old file or the new one, never a half).
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

namespace trainer {

// A whole file mapped privately: reads come from the page cache, writes (LibTorch wants writable memory) go
// to private copies of the pages and never reach the file.
class MappedFile {
 public:
  // Throws FormatError when the file is missing or cannot be read. An empty file maps to size 0.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile(std::filesystem::path path, std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  std::filesystem::path path_;
  std::byte* data_;
  size_t size_;
};

// The content of a (small) file. Throws FormatError when it cannot be read.
std::string read_file(const std::filesystem::path& path);

// Calls `write` with a stream to PATH.tmp, syncs it and renames it to PATH. On any failure PATH is untouched,
// the temporary file is removed and FormatError says why (no space, read-only, ...).
void write_atomically(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);
void write_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace trainer
