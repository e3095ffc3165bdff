// The memory of mapped files: frees it, and reads ahead.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainer {

// Gives the memory of the whole pages in this range of a mapped file back to the system. The pages are read
// from disk again when they are needed.
void release_pages(std::byte* data, int64_t bytes);

// Has this range of a mapped file read from the disk, and does not wait for it: a thread of its own asks the
// system. The range may be unmapped meanwhile.
void expect_pages(std::byte* data, int64_t bytes);

}  // namespace trainer
