#include "run/directory_lock.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "run/output_directory.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// What the holder wrote: "process 1234 on HOST".
std::string holder(int fd) {
  std::array<char, 512> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  std::string name(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
  name.erase(name.find_last_not_of('\n') + 1);
  return name.empty() ? "another process" : name;
}

[[noreturn]] void refuse_in_use(const fs::path& directory, const std::string& by) {
  throw OutputDirectoryError(concat("output_dir ", directory.string(), ": is in use by ", by,
                                    "; wait for it to end, or choose another output_dir"));
}

}  // namespace

fs::path DirectoryLock::file_in(const fs::path& directory) { return directory / ".lock"; }

DirectoryLock::DirectoryLock(const fs::path& directory) : file_(file_in(directory)) {
  lock_directory(directory);
  do {  // until the locked file is the one that others see: a run that ends removes its file
    if (fd_ >= 0) ::close(fd_);
    open_and_lock(directory);
  } while (!is_still_there());
  // Only for messages: the lock holds without it (disk full) too.
  const std::string text = concat("process ", ::getpid(), " on ", host_name(), "\n");
  if (::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, text.data(), text.size(), 0) < 0) ::ftruncate(fd_, 0);
}

// Some file systems can lock only files, not directories; then the lock on the file has to do.
void DirectoryLock::lock_directory(const fs::path& directory) {
  directory_fd_ = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_fd_ < 0 || ::flock(directory_fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(directory_fd_);
  const int fd = ::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const std::string by = fd < 0 ? "another process" : holder(fd);
  if (fd >= 0) ::close(fd);
  refuse_in_use(directory, by);
}

void DirectoryLock::open_and_lock(const fs::path& directory) {
  // Does not follow a link, because its target would be overwritten.
  fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (fd_ < 0) {
    const int error = errno;
    ::close(directory_fd_);
    if (error == ELOOP) {
      throw OutputDirectoryError(
          concat("output_dir ", directory.string(), ": ", file_.string(),
                 " is a link, not a lock file; remove it, or choose another output_dir"));
    }
    errno = error;
    throw OutputDirectoryError(concat("output_dir ", directory.string(), ": is not writable: ",
                                      std::strerror(errno), "; choose another output_dir"));
  }
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  if (error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP) {  // some network file systems
    log::warning(concat("output_dir ", directory.string(), ": this file system has no locks (",
                        std::strerror(error), "): make sure that no other run writes there"));
    return;
  }
  const std::string by = holder(fd_);
  ::close(fd_);
  ::close(directory_fd_);
  if (error == EWOULDBLOCK) refuse_in_use(directory, by);
  throw OutputDirectoryError(
      concat("output_dir ", directory.string(), ": cannot be locked: ", std::strerror(error)));
}

bool DirectoryLock::is_still_there() const {
  struct stat ours {
  }, there{};
  return ::fstat(fd_, &ours) == 0 && ::lstat(file_.c_str(), &there) == 0 && ours.st_ino == there.st_ino;
}

DirectoryLock::~DirectoryLock() {
  if (is_still_there()) ::unlink(file_.c_str());
  ::close(fd_);
  if (directory_fd_ >= 0) ::close(directory_fd_);
}

}  // namespace trainer
