// The lock on an output directory: flock on DIRECTORY/.lock and on the directory itself, so that it holds
// when somebody removes the file. The lock ends with the process that holds it. The file is removed at the
// end; a file left by a killed process locks nothing. On a file system without locks, only a warning is
// logged.
#pragma once

#include <filesystem>

namespace trainer {

class DirectoryLock {
 public:
  // Throws OutputDirectoryError when another process holds the lock (the message names it, from the text in
  // the file), or the file cannot be created.
  explicit DirectoryLock(const std::filesystem::path& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  static std::filesystem::path file_in(const std::filesystem::path& directory);

 private:
  void open_and_lock(const std::filesystem::path& directory);
  void lock_directory(const std::filesystem::path& directory);
  bool is_still_there() const;

  std::filesystem::path file_;
  int fd_ = -1, directory_fd_ = -1;
};

}  // namespace trainer
