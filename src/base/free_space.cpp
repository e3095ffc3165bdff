#include "base/free_space.h"

#include <cerrno>
#include <cstring>
#include <linux/magic.h>
#include <sys/stat.h>
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

std::filesystem::path existing_part(const std::filesystem::path& directory) {
  std::filesystem::path existing = std::filesystem::absolute(directory);
  for (std::error_code ignored; !std::filesystem::exists(existing, ignored) && existing.has_relative_path();)
    existing = existing.parent_path();
  return existing;
}

bool share_a_disk(const std::filesystem::path& one, const std::filesystem::path& other) {
  struct stat first {
  }, second{};
  return ::stat(one.c_str(), &first) == 0 && ::stat(other.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev;
}

bool lies_in_memory(const std::filesystem::path& path) {
  struct statfs info {};
  if (::statfs(path.c_str(), &info) != 0) return false;
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

}  // namespace trainer
