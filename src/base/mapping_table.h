// What is mapped where: for the handler of SIGBUS, which may run between any two instructions.
#pragma once

#include <cstddef>

namespace trainer {

// `path` is copied. More files than the table has room for are not named when they fail.
void note_mapping(const void* begin, size_t size, const char* path);
void forget_mapping(const void* begin);

}  // namespace trainer
