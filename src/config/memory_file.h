// A configuration that is not in a file yet.
#pragma once

#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer::config {

// A file in memory, which load_config() can open.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content) : fd_(::memfd_create("configuration", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
      throw ConfigError("no memory to check the result in");
    }
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return concat("/proc/self/fd/", fd_); }

 private:
  int fd_;
};

}  // namespace trainer::config
