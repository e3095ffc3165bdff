#include "text/unicode/unicode.h"

#include <algorithm>
#include <utf8proc.h>

#include "text/unicode/unicode_tables.h"

namespace trainer {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// Returns the range of a sorted table that contains c, or nullptr.
template <typename Range>
const Range* find_range(char32_t c, std::span<const Range> ranges) {
  const auto found = std::ranges::lower_bound(ranges, c, {}, &Range::last);
  return found != ranges.end() && found->first <= c ? &*found : nullptr;
}

bool is_new_word_character(char32_t c) {
  const AddedRange* range = find_range(c, added_to_categories());
  return range != nullptr &&
         (range->category[0] == 'L' || range->category[0] == 'M' || range->category == "Nd");
}

bool is_newly(char category, char32_t c) {
  const AddedRange* range = find_range(c, added_to_categories());
  return range != nullptr && range->category[0] == category;
}

}  // namespace

bool is_white_space(char32_t c) {
  return c == 0x20 || (c >= 0x09 && c <= 0x0d) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    case UTF8PROC_CATEGORY_CN:
      return is_new_word_character(c);
    default:  // circled and squared letters (Other_Alphabetic), and the two joiners (Join_Control)
      return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
             (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189) || c == 0x200c || c == 0x200d;
  }
}

bool is_letter(char32_t c) {
  const utf8proc_category_t of = category(c);
  return of == UTF8PROC_CATEGORY_CN ? is_newly('L', c)
                                    : of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO;
}

bool is_number(char32_t c) {
  const utf8proc_category_t of = category(c);
  return of == UTF8PROC_CATEGORY_CN ? is_newly('N', c)
                                    : of >= UTF8PROC_CATEGORY_ND && of <= UTF8PROC_CATEGORY_NO;
}

bool is_numeric(char32_t c) {
  const utf8proc_category_t of = category(c);
  if (of == UTF8PROC_CATEGORY_CN) return find_range(c, new_numbers()) != nullptr;
  return of == UTF8PROC_CATEGORY_ND || of == UTF8PROC_CATEGORY_NL || of == UTF8PROC_CATEGORY_NO;
}

bool is_left_alone_by_normal_forms(char32_t c) { return find_range(c, not_normalized()) != nullptr; }

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return c > 0x20 && c < 0x7f && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  const utf8proc_category_t of = category(c);
  return of >= UTF8PROC_CATEGORY_PC && of <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t c) {
  const utf8proc_category_t of = category(c);
  return of >= UTF8PROC_CATEGORY_MN && of <= UTF8PROC_CATEGORY_ME;
}

bool is_python_space(char32_t code_point) {
  return is_white_space(code_point) || (code_point >= 0x1c && code_point <= 0x1f);
}

}  // namespace trainer
