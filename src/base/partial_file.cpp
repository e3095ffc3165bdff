#include "base/partial_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/file_calls.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail_partial(const fs::path& path, const char* what) {
  const int error = errno;
  const char* reason = error == EFBIG ? "the file size limit is reached (ulimit -f)" : std::strerror(error);
  FormatError failure(concat(path.string(), ": cannot be ", what, ": ", reason));
  if (calls::is_lack_of_room(error)) failure.set_family(ErrorCode::disk_full);
  throw failure;
}

}  // namespace

PartialFile::PartialFile(fs::path path)
    : path_(std::move(path)), fd_(calls::open(path_, O_RDWR | O_CREAT | O_NOFOLLOW)) {
  if (fd_ < 0) fail_partial(path_, "written");
}

PartialFile::~PartialFile() { calls::close(fd_); }

void PartialFile::write_at(int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = calls::write_at(fd_, bytes.data(), bytes.size(), offset);
    if (written <= 0) {
      if (written == 0) errno = ENOSPC;
      fail_partial(path_, "written");
    }
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
}

size_t PartialFile::read_at(int64_t offset, char* buffer, size_t size) const {
  size_t total = 0;
  while (total < size) {
    const ssize_t read = ::pread(fd_, buffer + total, size - total, offset + static_cast<int64_t>(total));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) fail_partial(path_, "read");
    if (read == 0) break;
    total += static_cast<size_t>(read);
  }
  return total;
}

int64_t PartialFile::size() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) fail_partial(path_, "read");
  return info.st_size;
}

void PartialFile::truncate(int64_t size) {
  if (calls::truncate(fd_, size) != 0) fail_partial(path_, "written");
}

void PartialFile::sync() {
  if (calls::sync(fd_) != 0 && errno != EINVAL) fail_partial(path_, "written");
}

void make_link(const fs::path& target, const fs::path& path) {
  if (path.has_parent_path()) make_directories(path.parent_path());
  std::error_code ignored;
  if (fs::read_symlink(path, ignored) == target && !ignored) return;
  // Under another name first, so that there is always one or the other.
  fs::path temporary = path;
  temporary += concat(".", ::getpid(), ".tmp");
  calls::unlink(temporary);
  if (calls::symlink(target, temporary) != 0) fail_partial(path, "made a link");
  if (calls::rename(temporary, path) == 0) return;
  const int error = errno;
  calls::unlink(temporary);
  errno = error;
  fail_partial(path, "made a link");
}

}  // namespace trainer
