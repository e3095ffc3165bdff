#include "text/tokenizer/charsmap.h"

#include <cstring>
#include <utf8proc.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "text/unicode/utf8.h"

namespace trainer {
namespace {

// A unit of the double array.
size_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xffu); }
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
size_t value_of(uint32_t unit) { return unit & ~(1u << 31); }

}  // namespace

Charsmap::Charsmap(std::string blob, const std::string& where) {
  if (blob.empty()) return;
  uint32_t trie_bytes = 0;
  if (blob.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - sizeof trie_bytes) {
    throw FormatError(concat(where, ": the normalization table (precompiled_charsmap) is damaged"));
  }
  trie_.resize(trie_bytes / 4);
  std::memcpy(trie_.data(), blob.data() + sizeof trie_bytes, trie_bytes);
  replacements_ = blob.substr(sizeof trie_bytes + trie_bytes);
  for (char32_t c = 0x20; c < kFirstMark; c++) {
    std::string character;
    append_code_point(character, c);
    kept_[c] = find(character) == nullptr;
  }
}

const char* Charsmap::find(std::string_view text) const {
  size_t node = offset_of(trie_[0]);
  for (char byte : text) {
    const auto label = static_cast<unsigned char>(byte);
    node ^= label;
    if (label == 0 || node >= trie_.size() || label_of(trie_[node]) != label) return nullptr;
    const uint32_t unit = trie_[node];
    node ^= offset_of(unit);
    if (!has_value(unit)) continue;
    if (node >= trie_.size() || value_of(trie_[node]) >= replacements_.size()) return nullptr;
    return replacements_.c_str() + value_of(trie_[node]);
  }
  return nullptr;
}

void Charsmap::append_grapheme(std::string_view grapheme, std::string& out) const {
  if (grapheme.size() < 6) {
    if (const char* replacement = find(grapheme)) {
      out += replacement;
      return;
    }
  }
  for (size_t at = 0; at < grapheme.size();) {
    const size_t begin = at;
    next_code_point(grapheme, at);
    const std::string_view character = grapheme.substr(begin, at - begin);
    if (const char* replacement = find(character)) {
      out += replacement;
    } else {
      out += character;
    }
  }
}

size_t Charsmap::skip_kept(std::string_view text, size_t at) const {
  size_t kept = at;  // the character before it is known not to combine with the next
  while (at < text.size()) {
    size_t next = at;
    const char32_t c = next_code_point(text, next);
    if (c >= kFirstMark) return kept;
    kept = at;
    if (!kept_[c]) return kept;
    at = next;
  }
  return at;
}

std::string Charsmap::normalize(std::string_view text) const {
  if (trie_.empty()) return std::string(text);
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;  // of the grapheme that `at` is in
  utf8proc_int32_t state = 0;
  char32_t last = 0;
  for (size_t at = 0; at < text.size();) {
    if (const size_t kept = begin == at ? skip_kept(text, at) : at; kept > at) {
      out += text.substr(at, kept - at);
      begin = at = kept;
      continue;
    }
    size_t next = at;
    const char32_t c = next_code_point(text, next);
    if (at > begin && utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last),
                                                       static_cast<utf8proc_int32_t>(c), &state)) {
      append_grapheme(text.substr(begin, at - begin), out);
      begin = at;
      state = 0;
      continue;
    }
    last = c;
    at = next;
  }
  append_grapheme(text.substr(begin), out);
  return out;
}

}  // namespace trainer
