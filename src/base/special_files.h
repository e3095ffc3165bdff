// A file that is filled piece by piece, in any order and by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace trainer {

// All functions throw FormatError with the path and the reason.
class PartialFile {
 public:
  // Opens the file, or creates it.
  explicit PartialFile(std::filesystem::path path);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write_at(int64_t offset, std::string_view bytes);
  // Fills the buffer from the bytes at the offset. Returns how many there were, fewer at the end of the file.
  size_t read_at(int64_t offset, char* buffer, size_t size) const;
  int64_t size() const;
  void truncate(int64_t size);
  void sync();

 private:
  std::filesystem::path path_;
  int fd_;
};

// Makes a symbolic link at `path`, with missing parent folders; what is there is replaced, unless it is the
// same link.
void make_link(const std::filesystem::path& target, const std::filesystem::path& path);

// Memory that lies on a disk: a file that only this process sees, mapped for reading and writing.

// The file has no name, so that it is gone when the process ends, however it ends.
class ScratchFile {
 public:
  // Creates a file of `size` bytes (above 0), all 0, in an existing directory. All of its blocks are
  // allocated, so that a disk that fills up later does not matter. Throws FormatError when there is no room
  // or the directory is not writable.
  static std::shared_ptr<const ScratchFile> create(const std::filesystem::path& directory, size_t size);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  ScratchFile(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* data_;
  size_t size_;
};

// Removes the names that processes which were killed in ScratchFile::create() have left in the directory. The
// files of living processes have no names, so they lose nothing.
void remove_scratch_files(const std::filesystem::path& directory);

// Files that tell others something and that nobody needs to go on: they may be lost.

// Replaces the file: a reader sees the old content or the new one. Does not wait for the disk. Returns false,
// and leaves the file as it was, when it cannot be written (disk full, read-only). Throws nothing.
bool write_note(const std::filesystem::path& path, std::string_view content) noexcept;

}  // namespace trainer
