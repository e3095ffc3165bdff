#include "base/utf8.h"

#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

struct Sequence {
  size_t length;  // in bytes: of a whole character, or of the valid beginning of one
  bool whole;
};

// The bounds of the second byte exclude overlong forms, surrogates and values above U+10FFFF.
Sequence sequence_at(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xc2 || lead > 0xf4) return {1, false};
  const size_t wanted = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  const unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  const size_t available = text.size() - offset;
  for (size_t i = 1; i < wanted; i++) {
    if (i == available) return {i, false};
    const bool continues = i == 1 ? byte(i) >= low && byte(i) <= high : (byte(i) & 0xc0) == 0x80;
    if (!continues) return {i, false};
  }
  return {wanted, true};
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    uint64_t word;
    if (text.size() - i >= sizeof word) {
      std::memcpy(&word, text.data() + i, sizeof word);
      if ((word & 0x8080808080808080ull) == 0) {
        i += sizeof word;
        continue;
      }
    }
    const Sequence sequence = sequence_at(text, i);
    if (!sequence.whole) return i;
    i += sequence.length;
  }
  return i;
}

void require_utf8(std::string_view text) {
  const size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return;
  throw DataError(concat("text is not valid UTF-8: byte 0x", std::hex,
                         static_cast<int>(static_cast<unsigned char>(text[valid])), std::dec, " at offset ",
                         valid, "; convert the file to UTF-8 (for example with iconv)"));
}

size_t character_length(std::string_view text, size_t offset) {
  const auto lead = static_cast<unsigned char>(text[offset]);
  return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

char32_t next_code_point(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t lead = byte(offset++);
  if (lead < 0x80) return lead;
  const int more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
  char32_t code_point = lead & (0x3fu >> more);
  for (int i = 0; i < more; i++) code_point = code_point << 6 | (byte(offset++) & 0x3f);
  return code_point;
}

void append_code_point(std::string& text, char32_t c) {
  const auto push = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xc0 | c >> 6);
    push(0x80 | (c & 0x3f));
  } else {
    if (c < 0x10000) {
      push(0xe0 | c >> 12);
    } else {
      push(0xf0 | c >> 18);
      push(0x80 | (c >> 12 & 0x3f));
    }
    push(0x80 | (c >> 6 & 0x3f));
    push(0x80 | (c & 0x3f));
  }
}

std::string repair_utf8(std::string_view bytes, std::string_view replacement) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t valid = valid_utf8_prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    out.append(replacement);
    bytes.remove_prefix(sequence_at(bytes, 0).length);
  }
  return out;
}

std::vector<char32_t> code_points(std::string_view text) {
  std::vector<char32_t> out;
  for (size_t offset = 0; offset < text.size();) out.push_back(next_code_point(text, offset));
  return out;
}

std::string utf8(char32_t code_point) {
  std::string out;
  append_code_point(out, code_point);
  return out;
}

}  // namespace trainer
