// Creates a file or folder under a name that the user chose. It appears complete or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace trainer {

class NewOutput {
 public:
  // Makes PATH.tmp, an empty folder (what a killed process left in it is removed), and locks it. Throws
  // ConfigError if PATH exists; if `file` is false, PATH may be an empty folder. Throws FormatError if
  // another process is writing PATH.
  NewOutput(const std::filesystem::path& path, bool file);
  // Removes PATH.tmp with all that is in it.
  ~NewOutput();
  NewOutput(const NewOutput&) = delete;
  NewOutput& operator=(const NewOutput&) = delete;

  // The folder to fill; a file is written in it under the name that it will have.
  const std::filesystem::path& directory() const { return temporary_; }
  std::filesystem::path file() const { return temporary_ / path_.filename(); }
  // Renames the folder, or the file in it, to PATH. Throws FormatError; then PATH does not exist.
  void complete();

 private:
  static void remove(const std::filesystem::path& path);
  void require_no_output() const;
  void make_temporary();
  // False if the locked folder is no longer the one with that name.
  bool lock();
  void clear() const;

  std::filesystem::path path_, temporary_;
  bool is_file_;
  int lock_ = -1;  // the open folder PATH.tmp, even if it has been renamed
};

// Throws FormatError if the file system of `directory` has less than `bytes` of free space.
void require_space(const std::filesystem::path& directory, int64_t bytes);

}  // namespace trainer
