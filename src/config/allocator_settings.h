// The settings of LibTorch's caching allocator on the GPU.
#pragma once

#include <string>

#include "trainer/config/config.h"

namespace trainer {

// Returns the settings in the format of PYTORCH_ALLOC_CONF: "expandable_segments:True,max_split_size_mb:128".
// Settings that are off or not set are left out; "" when none is left.
std::string allocator_settings(const MemoryConfig& config);

}  // namespace trainer
