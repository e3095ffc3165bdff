// Memory of mapped files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainer {

// Gives the memory of the whole pages within these bytes of a mapped file back; they are read again when they
// are needed.
void release_pages(std::byte* data, int64_t bytes);

}  // namespace trainer
