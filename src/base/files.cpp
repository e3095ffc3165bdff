#include "trainer/base/files.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/file_facts.h"
#include "base/mappings.h"

namespace trainer {
namespace fs = std::filesystem;

namespace {

// Closes the descriptor in its destructor.
struct Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  ~Descriptor() { ::close(fd); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int fd;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

std::string why_not_opened(const fs::path& path, int error) {
  std::error_code ignored;
  if (error == ELOOP) return "is a link that leads back to itself";
  if (error == ENOENT && fs::is_symlink(path, ignored))
    return concat("is a link to ", fs::read_symlink(path, ignored).string(), ", which is not there");
  return concat("cannot be opened: ", std::strerror(error));
}

}  // namespace

bool has_entry(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

// O_NONBLOCK: opening a named pipe would wait for its writer.
int open_regular_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) throw FormatError(concat(path.string(), ": ", why_not_opened(path, errno)));
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  throw FormatError(concat(path.string(), ": is ", kind_of(info.st_mode),
                           S_ISDIR(info.st_mode) ? ", not a file" : ", not a regular file"));
}

std::shared_ptr<const MappedFile> MappedFile::open(const fs::path& path) {
  const Descriptor file(open_regular_file(path));
  struct stat info {};
  if (::fstat(file.fd, &info) != 0)
    throw FormatError(concat(path.string(), ": cannot be read: ", std::strerror(errno)));
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.fd, 0);
  }
  const int error = errno;
  if (data == MAP_FAILED) {
    throw FormatError(concat(
        path.string(), ": cannot be mapped: ", std::strerror(error),
        error == ENOMEM ? " (vm.max_map_count limits the number of files, ulimit -v their size)" : ""));
  }
  if (size > 0) note_mapping(data, size, path.c_str());
  return std::shared_ptr<const MappedFile>(new MappedFile(path, static_cast<std::byte*>(data), size));
}

MappedFile::~MappedFile() {
  if (size_ == 0) return;
  forget_mapping(data_);
  ::munmap(data_, size_);
}

std::string read_file(const fs::path& path) {
  const Descriptor file(open_regular_file(path));
  std::string content;
  struct stat info {};
  if (::fstat(file.fd, &info) == 0) content.reserve(static_cast<size_t>(info.st_size));
  std::array<char, 1 << 16> buffer;
  ssize_t size = 0;
  do {
    size = ::read(file.fd, buffer.data(), buffer.size());
    if (size > 0) content.append(buffer.data(), static_cast<size_t>(size));
  } while (size > 0 || (size < 0 && errno == EINTR));
  if (size < 0) throw FormatError(concat(path.string(), ": cannot be read: ", std::strerror(errno)));
  return content;
}

}  // namespace trainer
