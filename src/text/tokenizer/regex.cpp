#include "text/tokenizer/regex.h"

#include <algorithm>
#include <cctype>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "text/tokenizer/known_splits.h"
#include "text/unicode/unicode_tables.h"

namespace trainer {
namespace {

// Far more than a pattern needs to read a text once, and about a second of work for a pattern that tries all
// ways to match the same piece.
void set_limits(pcre2_match_context* context, size_t text_bytes) {
  constexpr uint64_t kLeast = 10'000'000, kPerByte = 100;
  const auto most = static_cast<uint32_t>(std::min<uint64_t>(kLeast + kPerByte * text_bytes, UINT32_MAX));
  pcre2_set_match_limit(context, most);
  pcre2_set_depth_limit(context, most);
  pcre2_set_heap_limit(context, 2 << 20);  // in KiB
}

[[noreturn]] void too_much(const std::string& pattern, std::string_view text, int error) {
  constexpr size_t kShown = 40;
  const size_t shown = text.size() <= kShown ? text.size() : valid_utf8_prefix(text.substr(0, kShown));
  throw DataError(concat("the tokenizer's regular expression '", pattern,
                         "' takes too many steps on a text of ", text.size(), " bytes that begins with '",
                         text.substr(0, shown), text.size() > shown ? "...'" : "'", " (PCRE2 error ", error,
                         "); split the text into shorter ones, or use another tokenizer"));
}

// Translates patterns from Oniguruma's dialect to PCRE2's. Constructs with the same meaning are kept, those
// with another spelling are rewritten, and all others are refused, because another split would give wrong ids
// without any error.
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

Regex::Regex(std::string_view pattern, const std::string& where) : known_split_(known_split(pattern)) {
  if (known_split_ == nullptr) *this = by_pcre2(pattern, where);
}

Regex Regex::by_pcre2(std::string_view pattern, const std::string& where) {
  const std::string translated = translate_regex(pattern, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UCP | PCRE2_UTF, &error, &offset, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR message[200];
    pcre2_get_error_message(error, message, sizeof message);
    throw FormatError(concat(where, ": the regular expression '", pattern, "' cannot be used: ",
                             reinterpret_cast<const char*>(message), " at offset ", offset));
  }
  Regex regex;
  regex.pattern_ = pattern;
  regex.code_.reset(code, pcre2_code_free);
  // Without a JIT for this machine, pcre2_match interprets the pattern: slower, with the same result.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return regex;
}

Regex Regex::literal(std::string_view text) {
  Regex regex;
  regex.literal_ = text;
  return regex;
}

std::string Regex::replace_all(std::string_view text, std::string_view content) const {
  std::vector<Span> matches;
  find_all(text, matches);
  std::string out;
  size_t done = 0;
  for (const Span& match : matches) {
    out.append(text.substr(done, match.begin - done)).append(content);
    done = match.end;
  }
  return out.append(text.substr(done));
}

void Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  if (known_split_ != nullptr) return known_split_(text, matches);
  if (!code_) {
    for (size_t at = text.find(literal_); at != std::string_view::npos;) {
      matches.push_back({at, at + literal_.size()});
      at = text.find(literal_, at + literal_.size());
    }
    return;
  }
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  set_limits(context.get(), text.size());
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at <= text.size();) {
    const auto match = [&](uint32_t options) {
      return pcre2_match(code_.get(), subject, text.size(), at, options | PCRE2_NO_UTF_CHECK, data.get(),
                         context.get());
    };
    int result = match(0);
    // The interpreter keeps its backtracking points on the heap.
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result < 0) too_much(pattern_, text.substr(at), result);
    matches.push_back({bounds[0], bounds[1]});
    at = bounds[1];
    if (bounds[1] == bounds[0]) {  // an empty match: continue after the next character
      for (at++; at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;) at++;
    }
  }
}

std::string translate_regex(std::string_view pattern, const std::string& where) {
  return Translation(pattern, where).run();
}

}  // namespace trainer
