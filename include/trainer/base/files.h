// Files: mapped for reading; written atomically (a reader sees the old file or the new one, never a partial
// one).
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

// The program writes all its files with the functions below. Each throws FormatError with the path and the
// reason (no space, read-only, ...). Each syncs, so that the result survives a power failure. Tests make them
// fail with base/file_faults.h.

// Calls `write` with a stream to PATH.tmp, syncs it and renames it to PATH. On failure PATH is unchanged and
// the temporary file is removed. (If only the sync of the folder failed, PATH is already the complete new
// file.) When the stream cannot write, the operation throws that FormatError. The stream supports tellp(),
// and of seekp() only going forward: what is left out reads as zeros.
void write_atomically(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);
void write_atomically(const std::filesystem::path& path, std::string_view content);

// Appends lines to a file, each completely or not at all. If the process ends while it writes, readers skip
// the rest.
class AppendedFile {
 public:
  // Opens the file, or creates it.
  explicit AppendedFile(std::filesystem::path path);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // When this returns, all readers see the line; it survives a power failure only after sync().
  void append(std::string_view line);
  int64_t size() const;
  void sync();
  // Removes everything after the first `size` bytes.
  void truncate(int64_t size);

 private:
  std::filesystem::path path_;
  int fd_;
};

// Creates a folder and its missing parent folders.
void make_directories(const std::filesystem::path& path);
// Renames a file or folder within one file system; a file or an empty folder at `to` is replaced.
void move_entry(const std::filesystem::path& from, const std::filesystem::path& to);
// Removes a file, or a folder with its contents; links are removed, not followed. Does nothing when the path
// does not exist.
void delete_entry(const std::filesystem::path& path);
// Flushes a file's content, or a folder's entries, to the disk.
void sync_entry(const std::filesystem::path& path);

}  // namespace trainer
