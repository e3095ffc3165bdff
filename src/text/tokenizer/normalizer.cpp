#include "text/tokenizer/normalizer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utf8proc.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "text/unicode/unicode.h"
#include "text/unicode/unicode_tables.h"

namespace trainer {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

std::string strip(std::string_view text, bool left, bool right) {
  size_t begin = 0, end = 0;  // after leading white space; before trailing white space
  bool leading = left;
  for (size_t at = 0; at < text.size();) {
    const bool blank = is_white_space(next_code_point(text, at));
    leading = leading && blank;
    if (leading) begin = at;
    if (!blank) end = at;
  }
  if (!right) end = text.size();
  return std::string(text.substr(begin, end > begin ? end - begin : 0));
}

std::string without_marks(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (!is_mark(c)) append_code_point(out, c);
  }
  return out;
}

// Works character by character, so a final sigma gets no special form. One character becomes two.
std::string lowercase(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c == 0x130) {
      out += "i\u0307";
    } else {
      append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

// Characters that NFC does not change and that do not combine with each other: the blocks of most text.
// Combining marks, and characters that stand for another one, lie outside.
constexpr CodePointRange kStayInFormC[]{
    {0x0000, 0x02ff},    // Latin
    {0x0388, 0x0482},    // Greek, Cyrillic
    {0x0488, 0x0590},    // Cyrillic, Armenian
    {0x1e00, 0x1f70},    // Latin (Vietnamese), Greek
    {0x2002, 0x20cf},    // punctuation, currencies
    {0x2e00, 0x3029},    // punctuation of Chinese and Japanese
    {0x3030, 0x3098},    // Hiragana
    {0x309b, 0xa66e},    // Katakana, Chinese characters
    {0xabee, 0xd7ff},    // Korean syllables
    {0xfb4f, 0xfe1f},    // forms of Arabic letters, variation selectors
    {0xfe30, 0xffff},    // wide forms
    {0x1f000, 0x1faff},  // emoji
    {0x20000, 0x2f7ff}   // Chinese characters
};

bool stays_in_form_c(char32_t c) {
  const auto found = std::ranges::lower_bound(kStayInFormC, c, {}, &CodePointRange::last);
  return found != std::end(kStayInFormC) && found->first <= c;
}

// A unit of the double array.
size_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xffu); }
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
size_t value_of(uint32_t unit) { return unit & ~(1u << 31); }

}  // namespace

bool may_change(std::string_view text, NormalForm form) {
  if (form != NormalForm::c)
    return std::ranges::any_of(text, [](char byte) { return static_cast<unsigned char>(byte) >= 0x80; });
  for (size_t at = 0; at < text.size();) {
    // Below U+0300, whose first byte is 0xcc.
    if (static_cast<unsigned char>(text[at]) < 0xcc) {
      at++;
    } else if (!stays_in_form_c(next_code_point(text, at))) {
      return true;
    }
  }
  return false;
}
namespace {

std::string to_normal_form_of_unicode(std::string_view text, NormalForm form) {
  const bool compose = form == NormalForm::c || form == NormalForm::kc;
  const bool compatible = form == NormalForm::kc || form == NormalForm::kd;
  const int options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* result = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &result,
                                 static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, std::free);
  if (size < 0) throw DataError(concat("text cannot be normalized: ", utf8proc_errmsg(size)));
  return {reinterpret_cast<const char*>(result), static_cast<size_t>(size)};
}

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form) {
  std::string out;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!is_left_alone_by_normal_forms(next_code_point(text, at))) continue;
    if (begin > done) out += to_normal_form_of_unicode(text.substr(done, begin - done), form);
    out += text.substr(begin, at - begin);
    done = at;
  }
  if (done < text.size()) out += to_normal_form_of_unicode(text.substr(done), form);
  return out;
}

std::string_view Normalizer::normalize(std::string_view text, std::string& storage) const {
  const auto changed = [&](std::string result) {
    storage = std::move(result);
    text = storage;
  };
  const Overloaded apply{
      [&](NormalForm form) {
        if (may_change(text, form)) changed(to_normal_form(text, form));
      },
      [&](const Charsmap& charsmap) { changed(charsmap.normalize(text)); },
      [&](const Prepend& prepend) {
        if (!text.empty()) changed(concat(prepend.text, text));
      },
      [&](const Replace& replace) { changed(replace.pattern.replace_all(text, replace.content)); },
      [&](const Strip& sides) { changed(strip(text, sides.left, sides.right)); },
      [&](const Lowercase&) { changed(lowercase(text)); },
      [&](const StripAccents&) { changed(without_marks(text)); },
  };
  for (const auto& step : steps_) std::visit(apply, step);
  return text;
}

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
