#include "text/jinja/text_tests.h"

#include <algorithm>
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
bool all(const Text& text, const Holds& holds) {
  return !text.empty() && std::ranges::all_of(code_points(text.bytes()), holds);
}

// Cased characters there are, and all of them are of this case.
template <class Holds>
bool all_cased(const Text& text, const Holds& holds) {
  bool any = false;
  for (char32_t c : code_points(text.bytes())) {
    if (!is_cased(c)) continue;
    if (!holds(c)) return false;
    any = true;
  }
  return any;
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
  return std::ranges::all_of(text.bytes(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
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
bool is_printable_text(const Text& text) {
  return std::ranges::all_of(code_points(text.bytes()), is_printable);
}
bool is_space_text(const Text& text) { return all(text, is_python_space); }

bool is_title_text(const Text& text) {
  bool any = false, cased_before = false;
  for (char32_t c : code_points(text.bytes())) {
    if (is_upper(c) || is_title(c)) {
      if (cased_before) return false;
      any = cased_before = true;
    } else if (is_lower(c)) {
      if (!cased_before) return false;
      any = true;
    } else {
      cased_before = false;
    }
  }
  return any;
}

}  // namespace trainer::jinja
