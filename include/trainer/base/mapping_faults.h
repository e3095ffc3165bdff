// Mapped files that are cut short, or whose disk fails, while they are read: the system then sends SIGBUS,
// which would end the program without a word.
#pragma once

#include "trainer/base/error.h"
#include "trainer/base/files.h"

namespace trainer {

// The exit code when that happens to this file; ExitCode::files unless it is set. What the program says then
// names the file.
void set_fault_code(const MappedFile& file, ExitCode code);

}  // namespace trainer
