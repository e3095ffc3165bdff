// A testing aid: makes the file layer (trainer/base/files.h) fail on purpose at one of its operations, as
// with a full disk, a broken disk, or a crash of the process. Without a fault it costs one comparison per
// operation.
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trainer {

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
