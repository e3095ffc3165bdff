// Parses human-readable sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainer {

// Returns the number of bytes of "5GB", "1.5 GiB" or "300MB": a number and one of kB, MB, GB, TB (powers of
// 1000) or KiB, MiB, GiB, TiB (powers of 1024); K is accepted for k. Returns nullopt for anything else.
std::optional<int64_t> parse_byte_size(const std::string& text);

}  // namespace trainer
