// GPT-2's way to write bytes as printable characters, used in the vocabulary of byte-level BPE ("Ġthe" is
// " the").
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trainer {

// Returns the bytes that `token` stands for; nullopt if one of its characters stands for no byte.
std::optional<std::string> byte_level_bytes(std::string_view token);

}  // namespace trainer
