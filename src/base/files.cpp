#include "trainer/base/files.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/mapping_table.h"

namespace trainer {
namespace fs = std::filesystem;

std::shared_ptr<const MappedFile> MappedFile::open(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw FormatError(concat(path.string(), ": cannot be opened: ", std::strerror(errno)));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    throw FormatError(concat(path.string(), ": is not a regular file"));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  }
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED) {
    throw FormatError(concat(path.string(), ": cannot be mapped: ", std::strerror(error)));
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
  std::ifstream in(path, std::ios::binary);
  if (in && fs::is_directory(path)) throw FormatError(concat(path.string(), ": is a directory, not a file"));
  if (!in) {
    throw FormatError(concat(path.string(), ": cannot be read: ", std::strerror(errno)));
  }
  std::ostringstream content;
  content << in.rdbuf();
  return content.str();
}

}  // namespace trainer
