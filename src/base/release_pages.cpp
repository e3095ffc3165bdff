#include "trainer/base/release_pages.h"

#include <algorithm>
#include <sys/mman.h>

namespace trainer {

constexpr uintptr_t kPage = 4096;

void release_pages(std::byte* data, int64_t bytes) {
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage,
                  end = (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes)) / kPage * kPage;
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

// In pieces, because Linux reads no more than a disk's read-ahead for each call (mm/readahead.c).
void expect_pages(std::byte* data, int64_t bytes) {
  constexpr uintptr_t piece = 128 << 10;
  const uintptr_t end = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes);
  for (uintptr_t at = reinterpret_cast<uintptr_t>(data) / kPage * kPage; at < end; at += piece)
    ::madvise(reinterpret_cast<void*>(at), std::min(piece, end - at), MADV_WILLNEED);
}

}  // namespace trainer
