// GPT-2's way to write bytes as printable characters: what byte-level BPE calls its vocabulary by ("Ġthe" is
// " the").
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trainer {

// The bytes that `token` stands for, or none when a character of it stands for no byte.
std::optional<std::string> byte_level_bytes(std::string_view token);

}  // namespace trainer
