// Memory that lies on a disk: a file that only this process sees, mapped for reading and writing.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

namespace trainer {

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

}  // namespace trainer
