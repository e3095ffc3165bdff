// The settings of LibTorch's caching allocator on the GPU.
#pragma once

#include <string>

#include "trainer/config/config.h"

namespace trainer {

// As LibTorch reads them from PYTORCH_ALLOC_CONF: "expandable_segments:True,max_split_size_mb:128". What is
// off or has no value is left out; "" when nothing is left.
std::string allocator_settings(const MemoryConfig& config);

}  // namespace trainer
