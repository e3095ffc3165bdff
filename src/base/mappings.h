// The memory of mapped files: frees it, and reads ahead.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/base/error.h"
#include "trainer/base/files.h"

namespace trainer {

// Gives the memory of the whole pages in this range of a mapped file back to the system. The pages are read
// from disk again when they are needed.
void release_pages(std::byte* data, int64_t bytes);

// Has this range of a mapped file read from the disk, and does not wait for it: a thread of its own asks the
// system. The range may be unmapped meanwhile.
void expect_pages(std::byte* data, int64_t bytes);

// Handles mapped files that are truncated, or whose disk fails, while they are read. The system then sends
// SIGBUS, which would end the program without a message.

// Sets the exit code for a fault in this file; the default is ExitCode::files. The error message names the
// file.
void set_fault_code(const MappedFile& file, ExitCode code);

// The table of mapped files for the SIGBUS handler, which may run between any two instructions.

// Adds a mapping; `path` is copied. Files beyond the size of the table are not named when they fail.
void note_mapping(const void* begin, size_t size, const char* path);
void forget_mapping(const void* begin);

}  // namespace trainer
