// The system calls that change files, with the results of the system (-1 and errno), unless a fault is set
// (base/file_faults.h). An interrupted call is repeated.
#pragma once

#include <cstddef>
#include <filesystem>
#include <sys/types.h>

namespace trainer::calls {

int open(const std::filesystem::path& path, int flags);  // new files get mode 0666 less umask
ssize_t write(int fd, const char* data, size_t size);
ssize_t write_at(int fd, const char* data, size_t size, off_t offset);
int sync(int fd);
int close(int fd);  // never repeated: the descriptor is gone
int truncate(int fd, off_t size);
int allocate(int fd, off_t size);  // the blocks of the first `size` bytes, which become a part of the file
int rename(const std::filesystem::path& from, const std::filesystem::path& to);
int symlink(const std::filesystem::path& target, const std::filesystem::path& path);
int unlink(const std::filesystem::path& path);
int mkdir(const std::filesystem::path& path);
int rmdir(const std::filesystem::path& path);

// Whether a call that failed with this errno did so for lack of room: a full disk, a quota or a limit.
bool is_lack_of_room(int error);

}  // namespace trainer::calls
