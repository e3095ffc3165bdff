// The table of mapped files for the SIGBUS handler, which may run between any two instructions.
#pragma once

#include <cstddef>

namespace trainer {

// Adds a mapping; `path` is copied. Files beyond the size of the table are not named when they fail.
void note_mapping(const void* begin, size_t size, const char* path);
void forget_mapping(const void* begin);

}  // namespace trainer
