#include "text/tokenizer/known_splits.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"
#include "text/unicode/unicode.h"

namespace trainer {
namespace {

enum class Class : uint8_t {
  letter,
  number,
  blank,
  newline,
  other
};  // newline: \r and \n, which are also blanks

Class find_class(char32_t c) {
  if (c == '\r' || c == '\n') return Class::newline;
  if (is_white_space(c)) return Class::blank;
  if (is_letter(c)) return Class::letter;
  return is_number(c) ? Class::number : Class::other;
}

// The end of the planes that have letters, numbers or white space.
constexpr char32_t kClassified = 0x40000;

const std::array<Class, kClassified>& classes() {
  static const auto* const table = [] {
    auto* made = new std::array<Class, kClassified>;
    for (char32_t c = 0; c < kClassified; c++) (*made)[c] = find_class(c);
    return made;
  }();
  return *table;
}

// A character of the text, with its class and length.
struct Character {
  Class is;
  size_t end;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text), classes_(classes()) {}

  size_t size() const { return text_.size(); }
  bool has(size_t at, char c) const { return at < text_.size() && text_[at] == c; }
  Character at(size_t place) const {
    const char32_t c = next_code_point(text_, place);
    return {c < kClassified ? classes_[c] : Class::other, place};
  }
  bool is(size_t place, Class wanted) const { return place < text_.size() && at(place).is == wanted; }
  // Returns the index after the characters of this class, at most `most` of them.
  size_t skip(size_t place, Class wanted, size_t most = static_cast<size_t>(-1)) const {
    for (; most > 0 && place < text_.size(); most--) {
      const Character next = at(place);
      if (next.is != wanted) break;
      place = next.end;
    }
    return place;
  }

  // Returns the end of 's|'t|'re|'ve|'m|'ll|'d if one begins at `place`, otherwise `place`. With any_case,
  // also finds them in capitals, and with the long s, which is a lower case form of S.
  size_t contraction(size_t place, bool any_case) const {
    const size_t first = place + 1;
    if (any_case && text_.substr(first).starts_with("\u017f")) return first + 2;
    const auto letter = [&](size_t i) {
      const char c = i < text_.size() ? text_[i] : '\0';
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char a = letter(first), b = letter(first + 1);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return first + 1;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? first + 2 : place;
  }

 private:
  std::string_view text_;
  const std::array<Class, kClassified>& classes_;
};

// A run of blanks: its end, the start of its last character, and the index after its last newline.
struct Blanks {
  size_t end, last, behind_newline;
};

Blanks blanks(const Reader& text, size_t place) {
  Blanks found{place, place, place};
  while (found.end < text.size()) {
    const Character next = text.at(found.end);
    if (next.is != Class::blank && next.is != Class::newline) break;
    found.last = found.end;
    found.end = next.end;
    if (next.is == Class::newline) found.behind_newline = next.end;
  }
  return found;
}

// \s+(?!\S)|\s+
size_t blanks_end(const Reader& text, size_t place, const Blanks& found) {
  return found.end < text.size() && found.last > place ? found.last : found.end;
}

// Returns the end of the match that begins at `place`. It is never empty.
size_t gpt2_word(const Reader& text, size_t place) {
  if (text.has(place, '\'')) {
    const size_t end = text.contraction(place, false);
    if (end != place) return end;
  }
  const size_t start = text.has(place, ' ') && place + 1 < text.size() ? place + 1 : place;
  const Class is = text.at(start).is;
  if (is != Class::blank && is != Class::newline) return text.skip(start, is);
  return blanks_end(text, place, blanks(text, place));
}

template <size_t kMostDigits>
size_t qwen2_word(const Reader& text, size_t place) {
  if (text.has(place, '\'')) {
    const size_t end = text.contraction(place, true);
    if (end != place) return end;
  }
  const Character first = text.at(place);
  if (first.is == Class::letter) return text.skip(first.end, Class::letter);
  if (first.is == Class::number) return text.skip(first.end, Class::number, kMostDigits - 1);
  if (first.is != Class::newline && text.is(first.end, Class::letter))
    return text.skip(first.end, Class::letter);
  const size_t others = text.has(place, ' ') ? first.end : place;
  if (text.is(others, Class::other)) return text.skip(text.skip(others, Class::other), Class::newline);
  const Blanks found = blanks(text, place);
  return found.behind_newline > place ? found.behind_newline : blanks_end(text, place, found);
}

template <size_t (*kWord)(const Reader&, size_t)>
void find_all(std::string_view text, std::vector<Span>& matches) {
  const Reader reader(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = kWord(reader, at);
    matches.push_back({at, end});
    at = end;
  }
}

}  // namespace

FindAll known_split(std::string_view pattern) {
  if (pattern == patterns::kGpt2) return find_all<gpt2_word>;
  if (pattern == patterns::kQwen2) return find_all<qwen2_word<1>>;
  if (pattern == patterns::kLlama3) return find_all<qwen2_word<3>>;
  return nullptr;
}

}  // namespace trainer
