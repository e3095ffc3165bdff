// Sizes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainer {

// "5GB", "1.5 GiB", "300MB": a number and one of kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (of
// 1024); k may be written K. None for anything else.
std::optional<int64_t> parse_byte_size(const std::string& text);

}  // namespace trainer
