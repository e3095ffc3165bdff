// Tokens that stand for a byte, <0x00> to <0xFF>. A model with byte_fallback uses them for characters that
// have no token.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

class ByteTokens {
 public:
  ByteTokens() { ids_.fill(-1); }
  // `find` looks a name up in the vocabulary.
  explicit ByteTokens(const std::function<std::optional<int32_t>(std::string_view)>& find);
  // Appends the ids of all bytes of `text`. Returns false and appends nothing if one of them has no token.
  bool append(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  std::array<int32_t, 256> ids_;
};

// Returns the byte that a token of this name stands for; nullopt if it stands for none.
std::optional<unsigned char> byte_of_token(std::string_view name);

// GPT-2's way to write bytes as printable characters, used in the vocabulary of byte-level BPE ("Ġthe" is
// " the").

// Returns the bytes that `token` stands for; nullopt if one of its characters stands for no byte.
std::optional<std::string> byte_level_bytes(std::string_view token);

}  // namespace trainer
