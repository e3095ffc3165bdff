#include "text/tokenizer/byte_tokens.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace trainer {

ByteTokens::ByteTokens(const std::function<std::optional<int32_t>(std::string_view)>& find) {
  for (size_t byte = 0; byte < ids_.size(); byte++) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    ids_[byte] = find(name).value_or(-1);
  }
}

bool ByteTokens::append(std::string_view text, std::vector<int32_t>& ids) const {
  const auto id = [&](char byte) { return ids_[static_cast<unsigned char>(byte)]; };
  if (std::ranges::any_of(text, [&](char byte) { return id(byte) < 0; })) return false;
  for (char byte : text) ids.push_back(id(byte));
  return true;
}

std::optional<unsigned char> byte_of_token(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name.back() != '>') return std::nullopt;
  unsigned char byte = 0;
  const auto [end, error] = std::from_chars(name.data() + 3, name.data() + 5, byte, 16);
  return error == std::errc() && end == name.data() + 5 ? std::optional(byte) : std::nullopt;
}

}  // namespace trainer
