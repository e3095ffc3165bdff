// A testing aid: the file layer (trainer/base/files.h) fails on purpose at one of its operations, as on a
// full disk, on a broken one, or by the end of the process. Without a fault it costs one comparison an
// operation.
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trainer {

enum class FaultKind {
  error,  // the operation does nothing and fails with FileFault::error
  brief,  // a write takes half of its bytes and says so, which is no failure; other operations succeed
  cut,    // a write takes half of its bytes, then fails; other operations are as with `error`
  crash,  // the process ends there with kCrashExitCode; a write has taken half of its bytes
  power   // the same, and files that were written but not synced are empty afterwards
};

struct FileFault {
  int64_t operation = 1;  // which one, counted from 1
  FaultKind kind = FaultKind::error;
  int error = ENOSPC;
  // All later operations as well: with ENOSPC and EDQUOT those that need space, with other errors all.
  bool lasting = false;
};

constexpr int kCrashExitCode = 86;

// "17:ENOSPC", "17:EIO", "17:EACCES", "17:EDQUOT", "17:EROFS", "17:brief", "17:cut", "17:crash", "17:power";
// "17+:ENOSPC" is lasting. The program takes one from the environment variable TRAINER_FILE_FAULT. Throws
// ConfigError.
FileFault parse_file_fault(std::string_view text);

// Sets the fault of this process (none: all goes well again) and counts operations from 0.
void set_file_fault(std::optional<FileFault> fault);

// Operations since the last set_file_fault().
int64_t count_file_operations();

}  // namespace trainer
