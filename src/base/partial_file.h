// A file that is filled piece by piece, in any order and by several threads.
#pragma once

#include <cstdint>
#include <filesystem>
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

}  // namespace trainer
