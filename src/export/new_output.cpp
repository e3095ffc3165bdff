#include "export/new_output.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/file_facts.h"

namespace trainer {
namespace fs = std::filesystem;

namespace {

// Returns whether `path` is the entry that `info` describes.
bool is_entry(const fs::path& path, const struct stat& info) {
  struct stat there {};
  return ::lstat(path.c_str(), &there) == 0 && there.st_dev == info.st_dev && there.st_ino == info.st_ino;
}

bool is_open_folder(const fs::path& path, int fd) {
  struct stat info {};
  return fd >= 0 && ::fstat(fd, &info) == 0 && is_entry(path, info);
}

}  // namespace

NewOutput::NewOutput(const fs::path& path, bool file)
    : path_(fs::absolute(path).lexically_normal()), is_file_(file) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "out/"
  temporary_ = path_.string() + ".tmp";
  require_no_output();
  try {
    do make_temporary();
    while (!lock());
    require_no_output();  // an earlier writer held the lock until its output was complete
    clear();
  } catch (...) {
    if (is_open_folder(temporary_, lock_)) remove(temporary_);
    if (lock_ >= 0) ::close(lock_);
    throw;
  }
}

// A link counts as existing, whatever it points to: renaming would replace it, or fail in the end.
void NewOutput::require_no_output() const {
  std::error_code error;
  const bool empty_folder =
      !is_file_ && fs::is_directory(fs::symlink_status(path_, error)) && fs::is_empty(path_, error);
  if (!has_entry(path_) || empty_folder) return;
  throw of_family(ErrorCode::output_exists,
                  ConfigError(concat(
                      path_.string(), fs::exists(path_, error) ? "" : " (a link that leads nowhere)",
                      ": already exists; give a ", is_file_ ? "file" : "directory", " that does not exist")));
}

void NewOutput::make_temporary() {
  std::error_code error;
  if (has_entry(temporary_) && !fs::is_directory(fs::symlink_status(temporary_, error)))
    delete_entry(temporary_);
  const bool was_there = has_entry(temporary_);
  try {
    make_directories(temporary_);
  } catch (...) {
    if (!was_there) fs::remove(temporary_, error);  // only if it is empty
    throw;
  }
}

// On a file system without locks, only the user can keep two exports apart.
bool NewOutput::lock() {
  if (lock_ >= 0) ::close(lock_);
  lock_ = ::open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (lock_ < 0 && errno != ENOENT)
    throw FormatError(concat(temporary_.string(), ": cannot be opened: ", std::strerror(errno)));
  if (lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(std::exchange(lock_, -1));
    throw FormatError(concat(path_.string(), ": is being written by another process (", temporary_.string(),
                             " is locked); wait for it to end, or give another name"));
  }
  return is_open_folder(temporary_, lock_);
}

void NewOutput::clear() const {
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(temporary_)) left.push_back(entry.path());
  for (const fs::path& path : left) delete_entry(path);
}

NewOutput::~NewOutput() {
  if (is_open_folder(temporary_, lock_)) remove(temporary_);
  if (lock_ >= 0) ::close(lock_);
}

void NewOutput::remove(const fs::path& path) {
  try {
    delete_entry(path);
  } catch (const FormatError& e) {
    log::warning(concat(e.what(), "; remove it"));
  }
}

void NewOutput::complete() {
  const fs::path made = is_file_ ? file() : temporary_;
  struct stat ours {};
  if (::lstat(made.c_str(), &ours) != 0)
    throw FormatError(concat(made.string(), ": is gone; another process has removed it"));
  try {
    move_entry(made, path_);
  } catch (...) {
    // Renamed, but not synced: it would not survive a crash of the machine.
    if (is_entry(path_, ours)) remove(path_);
    throw;
  }
  if (!is_entry(path_, ours))
    throw FormatError(concat(path_.string(), ": was replaced by another process while it was written"));
}

void require_space(const fs::path& directory, int64_t bytes) {
  const int64_t free = free_space(directory);
  if (free >= bytes) return;
  throw of_family(
      ErrorCode::disk_full,
      FormatError(concat(directory.string(), ": ", bytes_string(free), " are free, the export needs ",
                         bytes_string(bytes), "; free some space, or export elsewhere")));
}

}  // namespace trainer
