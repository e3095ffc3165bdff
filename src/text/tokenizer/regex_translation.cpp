// Translates patterns from Oniguruma's dialect to PCRE2's. Constructs with the same meaning are kept, those
// with another spelling are rewritten, and all others are refused, because another split would give wrong ids
// without any error.
#include <cctype>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "text/tokenizer/regex.h"
#include "text/unicode/unicode_tables.h"

namespace trainer {
namespace {

class Translation {
 public:
  Translation(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      switch (pattern_[at_]) {
        case '\\':
          escape();
          break;
        case '[':
          character_class();
          break;
        case '(':
          group();
          break;
        case '{':
          repetition();
          break;
        case '.':
          replace("[^\\n]", 1);
          break;
        case '^':  // in Ruby: the start of any line, except an empty last line
          replace("(?:\\A|(?<=\\n)(?!\\z))", 1);
          break;
        case '$':
          replace("(?=\\n|\\z)", 1);
          break;
        default:
          take(1);
      }
    }
    return out_;
  }

 private:
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void take(size_t length) {
    out_ += pattern_.substr(at_, length);
    at_ += length;
  }

  [[noreturn]] void refuse(size_t length) const {
    throw FormatError(concat(where_, ": '", pattern_.substr(at_, length), "' at offset ", at_,
                             " of the regular expression '", pattern_, "' is not supported"));
  }

  void escape() {
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    // PCRE2's own \s includes U+180E, which is not White_Space; its \v is a class.
    if (c == 's' || c == 'S') return replace(c == 's' ? "\\p{White_Space}" : "\\P{White_Space}", 2);
    if (c == 'd' || c == 'D') return category("Nd", c == 'D', 2);
    if (c == 'v') return replace("\\x0b", 2);
    if (c == 'p' || c == 'P') return property();
    const bool literal = std::ispunct(static_cast<unsigned char>(c)) || c == ' ';
    if (!literal && std::string_view("rntfea").find(c) == std::string_view::npos) refuse(2);
    if (c == '\0') refuse(1);
    take(2);
  }

  void replace(std::string_view text, size_t length) {
    out_ += text;
    at_ += length;
  }

  // A general category, with the characters that it has in Oniguruma and not yet in PCRE2. (Inside of a
  // class, \P cannot leave these characters out, so PCRE2's table decides.)
  void category(std::string_view name, bool negated, size_t length) {
    std::string characters = concat("\\p{", name, "}");
    const AddedRange* last = nullptr;
    for (const AddedRange& range : added_to_categories()) {
      if (!range.category.starts_with(name)) continue;
      if (last == nullptr || last->last + 1 != range.first) {
        if (last != nullptr) characters += concat("-\\x{", std::hex, static_cast<uint32_t>(last->last), "}");
        characters += concat("\\x{", std::hex, static_cast<uint32_t>(range.first), "}");
      }
      last = &range;
    }
    if (last != nullptr) characters += concat("-\\x{", std::hex, static_cast<uint32_t>(last->last), "}");
    if (in_class_) return replace(negated ? concat("\\P{", name, "}") : characters, length);
    replace(concat(negated ? "[^" : "[", characters, "]"), length);
  }

  // \p{L}, \p{Lu}, \p{Han}: general categories and scripts. PCRE2 reports a name that it does not know.
  void property() {
    const size_t end = pattern_.find('}', at_);
    if (!next_is("\\p{") && !next_is("\\P{")) refuse(2);
    if (end == std::string_view::npos) refuse(pattern_.size() - at_);
    const std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    const bool category = !name.empty() && name.size() <= 2 &&
                          std::string_view("LMNPSZC").find(name[0]) != std::string_view::npos;
    const bool script = name == "Han" || name == "Hiragana" || name == "Katakana" || name == "Hangul" ||
                        name == "Latin" || name == "Cyrillic" || name == "Greek" || name == "Arabic" ||
                        name == "Thai" || name == "Hebrew" || name == "Devanagari";
    // PCRE2 before 10.40 gave a bare script name another meaning (sc) than 10.40 and later (scx).
    if (!category && !script) refuse(end + 1 - at_);
    if (script) {
      out_ += concat(pattern_.substr(at_, 3), "sc:", name, "}");
      at_ = end + 1;
    } else {
      this->category(name, next_is("\\P"), end + 1 - at_);
    }
  }

  void character_class() {
    in_class_ = true;
    take(next_is("[^") ? 2 : 1);
    const size_t first = at_;
    while (true) {
      if (at_ >= pattern_.size()) refuse(0);
      if (pattern_[at_] == ']' && at_ > first) break;
      if (pattern_[at_] == '[' || pattern_[at_] == ']' || next_is("&&")) refuse(2);
      if (pattern_[at_] == '\\') {
        escape();
      } else {
        take(1);
      }
    }
    take(1);
    in_class_ = false;
  }

  void group() {
    if (!next_is("(?")) return take(1);
    for (std::string_view opening : {"(?i:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (next_is(opening)) return take(opening.size());
    }
    refuse(4);
  }

  // {n}, {n,}, {n,m}. A + after it is possessive in PCRE2 and a second repetition in Oniguruma. A ? after {n}
  // differs as well.
  void repetition() {
    size_t end = at_ + 1;
    while (end < pattern_.size() &&
           (std::isdigit(static_cast<unsigned char>(pattern_[end])) || pattern_[end] == ',')) {
      end++;
    }
    if (end >= pattern_.size() || pattern_[end] != '}' ||
        !std::isdigit(static_cast<unsigned char>(pattern_[at_ + 1]))) {
      refuse(end - at_);
    }
    if (end + 1 < pattern_.size() &&
        std::string_view("+?*{").find(pattern_[end + 1]) != std::string_view::npos) {
      refuse(end + 2 - at_);
    }
    take(end + 1 - at_);
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string translate_regex(std::string_view pattern, const std::string& where) {
  return Translation(pattern, where).run();
}

}  // namespace trainer
