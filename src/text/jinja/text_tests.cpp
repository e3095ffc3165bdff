#include "text/jinja/text_tests.h"

#include <utf8proc.h>

#include "text/jinja/text_case.h"
#include "text/jinja/value.h"
#include "text/unicode/letter_case.h"
#include "text/unicode/unicode.h"
#include "text/unicode/utf8.h"

namespace trainer::jinja {
namespace {

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

// Whether the text has cased characters, and all of them are of this case.
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
