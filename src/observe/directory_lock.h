// The lock on an output directory: flock on DIRECTORY/.lock, which ends with the process that holds it.
#pragma once

#include <filesystem>

namespace trainer {

class DirectoryLock {
 public:
  // Throws FormatError: another process holds it (named by what it wrote into the file), or the file cannot
  // be made.
  explicit DirectoryLock(const std::filesystem::path& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  static std::filesystem::path file_in(const std::filesystem::path& directory);

 private:
  int fd_;
};

}  // namespace trainer
