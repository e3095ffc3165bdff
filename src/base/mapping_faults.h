// Handles mapped files that are truncated, or whose disk fails, while they are read. The system then sends
// SIGBUS, which would end the program without a message.
#pragma once

#include "trainer/base/error.h"
#include "trainer/base/files.h"

namespace trainer {

// Sets the exit code for a fault in this file; the default is ExitCode::files. The error message names the
// file.
void set_fault_code(const MappedFile& file, ExitCode code);

}  // namespace trainer
