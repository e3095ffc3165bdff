#include "base/special_files.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/file_calls.h"
#include "base/file_facts.h"
#include "base/mappings.h"

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

namespace {

constexpr const char* kPrefix = ".trainer-offload-";

// Opens a new file and takes its name away.
int open_nameless(const fs::path& directory) {
  static std::atomic<int> next = 0;
  for (;;) {
    const fs::path path = directory / concat(kPrefix, ::getpid(), "-", next++);
    const int fd = calls::open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (fd < 0 && errno == EEXIST) continue;  // another machine's, or left by a killed process
    if (fd < 0)
      throw FormatError(concat(directory.string(), ": no file can be created: ", std::strerror(errno)));
    // Another run that shares the directory may have removed the name as a leftover.
    if (calls::unlink(path) == 0 || errno == ENOENT) return fd;
    const int error = errno;
    calls::close(fd);
    throw FormatError(concat(path.string(), ": cannot be removed: ", std::strerror(error)));
  }
}

[[noreturn]] void refuse_size(const fs::path& directory, size_t size, int error) {
  const char* reason = error == EFBIG ? "the file size limit is reached (ulimit -f)" : std::strerror(error);
  throw of_family(ErrorCode::disk_full,
                  FormatError(concat(directory.string(), ": no room for a file of ",
                                     bytes_string(static_cast<int64_t>(size)), ", ",
                                     bytes_string(free_space(directory)), " free: ", reason)));
}

}  // namespace

std::shared_ptr<const ScratchFile> ScratchFile::create(const fs::path& directory, size_t size) {
  const int fd = open_nameless(directory);
  if (calls::allocate(fd, static_cast<off_t>(size)) != 0) {
    const int error = errno;
    calls::close(fd);
    refuse_size(directory, size, error);
  }
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  calls::close(fd);
  if (data == MAP_FAILED) {
    throw FormatError(concat(
        directory.string(), ": a file cannot be mapped: ", std::strerror(error),
        error == ENOMEM ? " (vm.max_map_count limits the number of files, ulimit -v their size)" : ""));
  }
  note_mapping(data, size, concat(directory.string(), " (memory.offload)").c_str());
  return std::shared_ptr<const ScratchFile>(new ScratchFile(static_cast<std::byte*>(data), size));
}

ScratchFile::~ScratchFile() {
  forget_mapping(data_);
  ::munmap(data_, size_);
}

void remove_scratch_files(const fs::path& directory) {
  std::vector<fs::path> left;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().filename().string().starts_with(kPrefix)) left.push_back(entry.path());
  }
  for (const fs::path& path : left) delete_entry(path);
}

// Not by the functions of files.h: those sync, and a test counts their operations.
bool write_note(const std::filesystem::path& path, std::string_view content) noexcept {
  try {
    const std::string part = path.string() + ".tmp";
    const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return false;
    const bool whole = ::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size());
    const bool closed = ::close(fd) == 0;
    if (whole && closed && std::rename(part.c_str(), path.c_str()) == 0) return true;
    ::unlink(part.c_str());
  } catch (const std::exception&) {  // no memory for the name
  }
  return false;
}

}  // namespace trainer
