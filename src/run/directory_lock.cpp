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
#include "trainer/run/output_directory.h"

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

}  // namespace

fs::path DirectoryLock::file_in(const fs::path& directory) { return directory / ".lock"; }

DirectoryLock::DirectoryLock(const fs::path& directory) : file_(file_in(directory)) {
  do {  // until it is the file that others see: one that ends removes it
    if (fd_ >= 0) ::close(fd_);
    open_and_lock(directory);
  } while (!is_still_there());
  // Only for the message: without it (disk full) the lock holds all the same.
  const std::string text = concat("process ", ::getpid(), " on ", host_name(), "\n");
  if (::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, text.data(), text.size(), 0) < 0) ::ftruncate(fd_, 0);
}

void DirectoryLock::open_and_lock(const fs::path& directory) {
  fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    throw OutputDirectoryError(concat("output_dir ", directory.string(), ": is not writable: ",
                                      std::strerror(errno), "; choose another output_dir"));
  }
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  if (error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP) {  // some network file systems
    log::warning(concat("output_dir ", directory.string(), ": this file system has no locks (",
                        std::strerror(error), "): see to it that no other run writes there"));
    return;
  }
  const std::string by = holder(fd_);
  ::close(fd_);
  if (error == EWOULDBLOCK) {
    throw OutputDirectoryError(concat("output_dir ", directory.string(), ": is in use by ", by,
                                      "; wait for it to end, or choose another output_dir"));
  }
  throw OutputDirectoryError(
      concat("output_dir ", directory.string(), ": cannot be locked: ", std::strerror(error)));
}

bool DirectoryLock::is_still_there() const {
  struct stat ours {
  }, there{};
  return ::fstat(fd_, &ours) == 0 && ::stat(file_.c_str(), &there) == 0 && ours.st_ino == there.st_ino;
}

DirectoryLock::~DirectoryLock() {
  ::unlink(file_.c_str());
  ::close(fd_);
}

}  // namespace trainer
