#include "text/jinja/text.h"

#include <algorithm>
#include <span>
#include <utf8proc.h>

#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "text/jinja/value.h"
#include "text/unicode/unicode.h"

namespace trainer::jinja {
namespace {

// Maps each character, by its index among all of them.
template <class Map>
Text changed_case(const Text& text, const Map& map) {
  const auto all = text.characters();
  const std::span<const char32_t> view = all;
  return text.mapped([&](size_t at) { return map(view, at); });
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_letter(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_numeral(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

template <class Holds>
bool every(const Text& text, const Holds& holds) {
  for (size_t at = 0; at < text.bytes().size();) {
    Budget::spend(4);
    if (!holds(next_code_point(text.bytes(), at))) return false;
  }
  return true;
}

template <class Holds>
bool all(const Text& text, const Holds& holds) {
  return !text.empty() && every(text, holds);
}

// Returns whether the text has cased characters, and all of them are of this case.
template <class Holds>
bool all_cased(const Text& text, const Holds& holds) {
  bool any = false;
  return every(text,
               [&](char32_t c) {
                 if (!is_cased(c)) return true;
                 any = true;
                 return holds(c);
               }) &&
         any;
}

}  // namespace

void Text::too_long() {
  throw OutOfBudget(concat("a text of more than ", Budget::kLongestText >> 20, " MB"));
}

void Text::add_run(size_t size, Origin origin) {
  if (size == 0) return;
  if (bytes_.empty()) {
    origin_ = origin;
    ends_.clear();
  } else if (ends_.empty()) {
    if (origin == origin_) return;
    ends_ = {{bytes_.size(), origin_}, {bytes_.size() + size, origin}};
  } else if (ends_.back().origin == origin) {
    ends_.back().end += size;
  } else {
    ends_.push_back({bytes_.size() + size, origin});
  }
}

Text& Text::append(const Text& other, Origin origin) {
  if (&other == this) return append(Text(other), origin);
  const auto known = [&](Origin own) { return own.is_known() ? own : origin; };
  if (other.ends_.empty()) {
    require_room(other.bytes_.size());
    add_run(other.bytes_.size(), known(other.origin_));
    bytes_ += other.bytes_;
    count();
    return *this;
  }
  for (const Run& run : other.runs())
    append(std::string_view(other.bytes_).substr(run.begin, run.end - run.begin), known(run.origin));
  return *this;
}

Text Text::slice(size_t begin, size_t end) const {
  Budget::spend_bytes(end > begin ? end - begin : 0);
  Text out(bytes_.substr(begin, end - begin), safe_);
  out.origin_ = origin_;
  if (ends_.empty() || begin >= end) return out;
  auto run = std::ranges::upper_bound(ends_, begin, {}, &End::end);
  out.origin_ = run->origin;
  if (run->end >= end) return out;
  for (;; run++) {
    Budget::spend(1);
    out.ends_.push_back({std::min(run->end, end) - begin, run->origin});
    if (run->end >= end) return out;
  }
}

CountedVector<Text::Run> Text::runs() const {
  if (bytes_.empty()) return {};
  if (ends_.empty()) return {{0, bytes_.size(), origin_}};
  Budget::spend(ends_.size());
  CountedVector<Run> out;
  for (size_t begin = 0; const End& end : ends_) {
    out.push_back({begin, end.end, end.origin});
    begin = end.end;
  }
  return out;
}

Text Text::generated() const {
  Text out = *this;
  out.origin_ = origin_.in_generation();
  for (End& end : out.ends_) end.origin = end.origin.in_generation();
  return out;
}
namespace {

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

}  // namespace

size_t Text::length() const {
  Budget::spend_bytes(bytes_.size());
  return static_cast<size_t>(std::ranges::count_if(bytes_, begins_character));
}

size_t Text::offset(size_t index) const {
  size_t at = 0;
  for (size_t i = 0; i < index; i++) at += character_length(bytes_, at);
  Budget::spend(index);
  return at;
}

CountedVector<size_t> Text::borders() const {
  CountedVector<size_t> at;
  at.reserve(length() + 1);
  Budget::spend(bytes_.size());
  for (size_t i = 0; i < bytes_.size(); i++) {
    if (begins_character(bytes_[i])) at.push_back(i);
  }
  at.push_back(bytes_.size());
  return at;
}

CountedVector<char32_t> Text::characters() const {
  CountedVector<char32_t> all;
  all.reserve(length());
  Budget::spend(bytes_.size());
  for (size_t at = 0; at < bytes_.size();) all.push_back(next_code_point(bytes_, at));
  return all;
}

Text Text::strip(const Text* set, bool left, bool right) const {
  const CountedVector<char32_t> characters = set ? set->characters() : CountedVector<char32_t>();
  const auto goes = [&](size_t at) {
    const char32_t c = next_code_point(bytes_, at);
    Budget::spend(4 + characters.size() / 4);
    return set ? std::ranges::find(characters, c) != characters.end() : is_python_space(c);
  };
  const auto step_back = [&](size_t at) {
    do at--;
    while ((static_cast<unsigned char>(bytes_[at]) & 0xc0) == 0x80);
    return at;
  };
  size_t begin = 0, end = bytes_.size();
  while (left && begin < end && goes(begin)) next_code_point(bytes_, begin);
  while (right && end > begin && goes(step_back(end))) end = step_back(end);
  return slice(begin, end);
}

Text upper(const Text& text) {
  return changed_case(text, [](const auto& all, size_t at) { return upper_of(all[at]); });
}

Text lower(const Text& text) {
  return changed_case(text, [](const auto& all, size_t at) { return lower_of(all, at); });
}

Text capitalize(const Text& text) {
  return changed_case(text,
                      [](const auto& all, size_t at) { return at ? lower_of(all, at) : title_of(all[0]); });
}

Text swap_case(const Text& text) {
  return changed_case(text, [](const auto& all, size_t at) {
    if (is_upper(all[at])) return lower_of(all, at);
    return is_lower(all[at]) ? upper_of(all[at]) : utf8(all[at]);
  });
}

Text title(const Text& text) {
  return changed_case(text, [](const auto& all, size_t at) {
    return at && is_cased(all[at - 1]) ? lower_of(all, at) : title_of(all[at]);
  });
}

Text case_fold(const Text& text) {
  return changed_case(text, [](const auto& all, size_t at) { return folded(all[at]); });
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alnum(const Text& text) {
  return all(text, [](char32_t c) { return is_letter(c) || is_numeral(c); });
}
bool is_alpha(const Text& text) { return all(text, is_letter); }
bool is_ascii(const Text& text) {
  return every(text, [](char32_t c) { return c < 0x80; });
}
bool is_decimal(const Text& text) {
  return all(text, [](char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; });
}
bool is_digit(const Text& text) {
  return all(text, [](char32_t c) {
    if (category(c) == UTF8PROC_CATEGORY_NO) throw Unsupported("isdigit() of other digits than decimal ones");
    return category(c) == UTF8PROC_CATEGORY_ND;
  });
}
bool is_lower_text(const Text& text) { return all_cased(text, is_lower); }
bool is_upper_text(const Text& text) { return all_cased(text, is_upper); }
bool is_printable_text(const Text& text) { return every(text, is_printable); }
bool is_space_text(const Text& text) { return all(text, is_python_space); }

bool is_title_text(const Text& text) {
  bool any = false, cased_before = false;
  return every(text,
               [&](char32_t c) {
                 const bool capital = is_upper(c) || is_title(c), cased = capital || is_lower(c);
                 const bool fits = !cased || capital != cased_before;
                 any = any || cased;
                 cased_before = cased;
                 return fits;
               }) &&
         any;
}

}  // namespace trainer::jinja
