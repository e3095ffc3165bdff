// The system calls that change files, with the results of the system (-1 and errno), unless a fault is set
// (a testing aid, below). An interrupted call is repeated.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
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

// Returns whether a call failed with this errno for lack of room: a full disk, a quota or a limit.
bool is_lack_of_room(int error);

}  // namespace trainer::calls

namespace trainer {

// A testing aid: makes the file layer (trainer/base/files.h) fail on purpose at one of its operations, as
// with a full disk, a broken disk, or a crash of the process. Without a fault it costs one comparison per
// operation.

enum class FaultKind {
  error,  // the operation does nothing and fails with FileFault::error
  brief,  // a write takes half of its bytes and reports that (not a failure); other operations succeed
  cut,    // a write takes half of its bytes, then fails; other operations behave as with `error`
  crash,  // the process exits there with kCrashExitCode; a write has taken half of its bytes
  power   // like crash, and files that were written but not synced are empty afterwards
};

struct FileFault {
  int64_t operation = 1;  // which one, counted from 1
  FaultKind kind = FaultKind::error;
  int error = ENOSPC;
  // Later operations fail as well: with ENOSPC and EDQUOT those that need space, with other errors all of
  // them.
  bool lasting = false;
};

constexpr int kCrashExitCode = 86;

// Parses "17:ENOSPC", "17:EIO", "17:EACCES", "17:EDQUOT", "17:EROFS", "17:brief", "17:cut", "17:crash" or
// "17:power"; "17+:ENOSPC" sets `lasting`. The program reads one from the environment variable
// TRAINER_FILE_FAULT. Throws ConfigError for anything else.
FileFault parse_file_fault(std::string_view text);

// Sets the fault of this process (nullopt: no fault) and restarts the operation count at 0.
void set_file_fault(std::optional<FileFault> fault);

// Returns the number of operations since the last set_file_fault().
int64_t count_file_operations();

}  // namespace trainer
