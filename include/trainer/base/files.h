// Files: mapped for reading; written atomically (a reader sees the old file or the new one, never a half).
#pragma once

#include <cstddef>
#include <cstdint>
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

// Everything that the program writes goes through what follows. Each throws FormatError with the path and the
// reason (no space, read-only, ...), and syncs, so that what it did survives the end of the machine.
// trainer/base/file_faults.h makes them fail in tests.

// Calls `write` with a stream to PATH.tmp, syncs it and renames it to PATH. On any failure PATH is untouched
// (or, where only its folder could not be synced, whole and new) and the temporary file is removed. The
// stream throws that FormatError from every operation that cannot write; it can tell its position, not set
// it.
void write_atomically(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);
void write_atomically(const std::filesystem::path& path, std::string_view content);

// Lines at the end of a file, each there as a whole or not at all.
class AppendedFile {
 public:
  // Opens or makes it.
  explicit AppendedFile(std::filesystem::path path);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // It is in the file when this returns, for all readers; only sync() makes it survive the machine.
  void append(std::string_view line);
  int64_t size() const;
  void sync();
  // Removes all behind the first `size` bytes.
  void truncate(int64_t size);

 private:
  std::filesystem::path path_;
  int fd_;
};

// Makes a folder and those above it, where they are not there.
void make_directories(const std::filesystem::path& path);
// Renames a file or folder within one file system; a file or an empty folder at `to` is replaced.
void move_entry(const std::filesystem::path& from, const std::filesystem::path& to);
// Removes a file, or a folder with all that is in it; links are removed, not followed. What is not there is
// no failure.
void delete_entry(const std::filesystem::path& path);
// Writes a file's bytes, or a folder's names, through to the disk.
void sync_entry(const std::filesystem::path& path);

}  // namespace trainer
