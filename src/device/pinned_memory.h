// Memory of the host that cannot be paged out, and that GPUs read and write directly.
#pragma once

#include <cstddef>

namespace trainer {

// Returns zeros, aligned to a page, that every GPU sees at the same address; nullptr when the driver refuses.
// `gpu`: the number of the GPU whose context is used.
void* allocate_pinned(size_t bytes, int gpu);
// Waits until no GPU uses it.
void free_pinned(void* data, int gpu);

}  // namespace trainer
