// Advice for a LibTorch without its CUDA library.
#pragma once

#include <filesystem>
#include <string>

namespace trainer {

// Says what to do. `torch` is the folder of the LibTorch in use, such as
// env/lib/python3.11/site-packages/torch; `has_setup` says whether the program was built in a source tree,
// which has scripts/setup.
std::string how_to_get_cuda(const std::filesystem::path& torch, bool has_setup);

}  // namespace trainer
