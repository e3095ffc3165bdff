#include "text/tokenizer/byte_tokens.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "base/utf8.h"

namespace trainer {
namespace {

// Printable Latin-1 characters stand for themselves; the other 68 bytes are U+0100, U+0101, ... in order.
constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr size_t kCharacters = 0x100 + 68;

constexpr std::array<int16_t, kCharacters> byte_of_character() {
  std::array<int16_t, kCharacters> table{};
  size_t next = 0x100;
  for (auto& entry : table) entry = -1;
  for (int byte = 0; byte < 0x100; byte++) {
    table[stands_for_itself(byte) ? static_cast<size_t>(byte) : next++] = static_cast<int16_t>(byte);
  }
  return table;
}

}  // namespace

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

std::optional<std::string> byte_level_bytes(std::string_view token) {
  static constexpr auto table = byte_of_character();
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const char32_t c = next_code_point(token, at);
    if (c >= kCharacters || table[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(table[c]));
  }
  return bytes;
}

}  // namespace trainer
