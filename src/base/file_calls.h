// The system calls that change files, as the system has them (-1 and errno), but for a fault that is set
// (trainer/base/file_faults.h). An interrupted call is made again.
#pragma once

#include <cstddef>
#include <filesystem>
#include <sys/types.h>

namespace trainer::calls {

int open(const std::filesystem::path& path, int flags);  // new files get mode 0666 less umask
ssize_t write(int fd, const char* data, size_t size);
int sync(int fd);
int close(int fd);  // never made again: the descriptor is gone
int truncate(int fd, off_t size);
int rename(const std::filesystem::path& from, const std::filesystem::path& to);
int unlink(const std::filesystem::path& path);
int mkdir(const std::filesystem::path& path);
int rmdir(const std::filesystem::path& path);

}  // namespace trainer::calls
