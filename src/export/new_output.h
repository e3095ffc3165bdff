// Something new under a name of the user's choice, which is there when it is complete, or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace trainer {

class NewOutput {
 public:
  // Makes PATH.tmp, an empty folder (what a killed process left in it is removed), and locks it. Throws
  // ConfigError where PATH is there and no empty folder; for a `file` where it is there at all. Throws
  // FormatError where another process is writing PATH.
  NewOutput(const std::filesystem::path& path, bool file);
  // Removes PATH.tmp with all that is in it.
  ~NewOutput();
  NewOutput(const NewOutput&) = delete;
  NewOutput& operator=(const NewOutput&) = delete;

  // The folder to fill; a file is written in it under the name that it will have.
  const std::filesystem::path& directory() const { return temporary_; }
  std::filesystem::path file() const { return temporary_ / path_.filename(); }
  // The folder, or the file in it, takes its name. Throws FormatError; then nothing has it.
  void complete();

 private:
  static void remove(const std::filesystem::path& path);
  void require_no_output() const;
  void make_temporary();
  // False: the folder that was locked is no longer the one of that name.
  bool lock();
  void clear() const;

  std::filesystem::path path_, temporary_;
  bool is_file_;
  int lock_ = -1;  // the open folder PATH.tmp, whatever its name is by now
};

// Throws FormatError where the file system of `directory` has no room for an export of so many bytes.
void require_space(const std::filesystem::path& directory, int64_t bytes);

}  // namespace trainer
