#include "text/tokenizer/byte_level.h"

#include <array>

#include "text/unicode/utf8.h"

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
