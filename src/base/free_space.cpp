#include "trainer/base/free_space.h"

#include <cerrno>
#include <cstring>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {

int64_t free_space(const std::filesystem::path& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0)
    throw FormatError(concat(path.string(), ": its free space is unknown: ", std::strerror(errno)));
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

bool lies_in_memory(const std::filesystem::path& path) {
  struct statfs info {};
  if (::statfs(path.c_str(), &info) != 0) return false;
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

}  // namespace trainer
