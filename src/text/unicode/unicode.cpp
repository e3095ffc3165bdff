#include "text/unicode/unicode.h"

#include <algorithm>
#include <span>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/unicode/unicode_tables.h"

namespace trainer {
namespace {

// Characters whose upper or title case is several characters (SpecialCasing.txt of Unicode, the entries
// without a condition).
struct SpecialCasing {
  char32_t lower;
  const char32_t *upper, *title;
};

inline constexpr SpecialCasing kSpecialCasing[] = {
    {0x00df, U"\u0053\u0053", U"\u0053\u0073"},
    {0x0149, U"\u02bc\u004e", U"\u02bc\u004e"},
    {0x01f0, U"\u004a\u030c", U"\u004a\u030c"},
    {0x0390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x03b0, U"\u03a5\u0308\u0301", U"\u03a5\u0308\u0301"},
    {0x0587, U"\u0535\u0552", U"\u0535\u0582"},
    {0x1e96, U"\u0048\u0331", U"\u0048\u0331"},
    {0x1e97, U"\u0054\u0308", U"\u0054\u0308"},
    {0x1e98, U"\u0057\u030a", U"\u0057\u030a"},
    {0x1e99, U"\u0059\u030a", U"\u0059\u030a"},
    {0x1e9a, U"\u0041\u02be", U"\u0041\u02be"},
    {0x1f50, U"\u03a5\u0313", U"\u03a5\u0313"},
    {0x1f52, U"\u03a5\u0313\u0300", U"\u03a5\u0313\u0300"},
    {0x1f54, U"\u03a5\u0313\u0301", U"\u03a5\u0313\u0301"},
    {0x1f56, U"\u03a5\u0313\u0342", U"\u03a5\u0313\u0342"},
    {0x1f80, U"\u1f08\u0399", U"\u1f88"},
    {0x1f81, U"\u1f09\u0399", U"\u1f89"},
    {0x1f82, U"\u1f0a\u0399", U"\u1f8a"},
    {0x1f83, U"\u1f0b\u0399", U"\u1f8b"},
    {0x1f84, U"\u1f0c\u0399", U"\u1f8c"},
    {0x1f85, U"\u1f0d\u0399", U"\u1f8d"},
    {0x1f86, U"\u1f0e\u0399", U"\u1f8e"},
    {0x1f87, U"\u1f0f\u0399", U"\u1f8f"},
    {0x1f88, U"\u1f08\u0399", U"\u1f88"},
    {0x1f89, U"\u1f09\u0399", U"\u1f89"},
    {0x1f8a, U"\u1f0a\u0399", U"\u1f8a"},
    {0x1f8b, U"\u1f0b\u0399", U"\u1f8b"},
    {0x1f8c, U"\u1f0c\u0399", U"\u1f8c"},
    {0x1f8d, U"\u1f0d\u0399", U"\u1f8d"},
    {0x1f8e, U"\u1f0e\u0399", U"\u1f8e"},
    {0x1f8f, U"\u1f0f\u0399", U"\u1f8f"},
    {0x1f90, U"\u1f28\u0399", U"\u1f98"},
    {0x1f91, U"\u1f29\u0399", U"\u1f99"},
    {0x1f92, U"\u1f2a\u0399", U"\u1f9a"},
    {0x1f93, U"\u1f2b\u0399", U"\u1f9b"},
    {0x1f94, U"\u1f2c\u0399", U"\u1f9c"},
    {0x1f95, U"\u1f2d\u0399", U"\u1f9d"},
    {0x1f96, U"\u1f2e\u0399", U"\u1f9e"},
    {0x1f97, U"\u1f2f\u0399", U"\u1f9f"},
    {0x1f98, U"\u1f28\u0399", U"\u1f98"},
    {0x1f99, U"\u1f29\u0399", U"\u1f99"},
    {0x1f9a, U"\u1f2a\u0399", U"\u1f9a"},
    {0x1f9b, U"\u1f2b\u0399", U"\u1f9b"},
    {0x1f9c, U"\u1f2c\u0399", U"\u1f9c"},
    {0x1f9d, U"\u1f2d\u0399", U"\u1f9d"},
    {0x1f9e, U"\u1f2e\u0399", U"\u1f9e"},
    {0x1f9f, U"\u1f2f\u0399", U"\u1f9f"},
    {0x1fa0, U"\u1f68\u0399", U"\u1fa8"},
    {0x1fa1, U"\u1f69\u0399", U"\u1fa9"},
    {0x1fa2, U"\u1f6a\u0399", U"\u1faa"},
    {0x1fa3, U"\u1f6b\u0399", U"\u1fab"},
    {0x1fa4, U"\u1f6c\u0399", U"\u1fac"},
    {0x1fa5, U"\u1f6d\u0399", U"\u1fad"},
    {0x1fa6, U"\u1f6e\u0399", U"\u1fae"},
    {0x1fa7, U"\u1f6f\u0399", U"\u1faf"},
    {0x1fa8, U"\u1f68\u0399", U"\u1fa8"},
    {0x1fa9, U"\u1f69\u0399", U"\u1fa9"},
    {0x1faa, U"\u1f6a\u0399", U"\u1faa"},
    {0x1fab, U"\u1f6b\u0399", U"\u1fab"},
    {0x1fac, U"\u1f6c\u0399", U"\u1fac"},
    {0x1fad, U"\u1f6d\u0399", U"\u1fad"},
    {0x1fae, U"\u1f6e\u0399", U"\u1fae"},
    {0x1faf, U"\u1f6f\u0399", U"\u1faf"},
    {0x1fb2, U"\u1fba\u0399", U"\u1fba\u0345"},
    {0x1fb3, U"\u0391\u0399", U"\u1fbc"},
    {0x1fb4, U"\u0386\u0399", U"\u0386\u0345"},
    {0x1fb6, U"\u0391\u0342", U"\u0391\u0342"},
    {0x1fb7, U"\u0391\u0342\u0399", U"\u0391\u0342\u0345"},
    {0x1fbc, U"\u0391\u0399", U"\u1fbc"},
    {0x1fc2, U"\u1fca\u0399", U"\u1fca\u0345"},
    {0x1fc3, U"\u0397\u0399", U"\u1fcc"},
    {0x1fc4, U"\u0389\u0399", U"\u0389\u0345"},
    {0x1fc6, U"\u0397\u0342", U"\u0397\u0342"},
    {0x1fc7, U"\u0397\u0342\u0399", U"\u0397\u0342\u0345"},
    {0x1fcc, U"\u0397\u0399", U"\u1fcc"},
    {0x1fd2, U"\u0399\u0308\u0300", U"\u0399\u0308\u0300"},
    {0x1fd3, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x1fd6, U"\u0399\u0342", U"\u0399\u0342"},
    {0x1fd7, U"\u0399\u0308\u0342", U"\u0399\u0308\u0342"},
    {0x1fe2, U"\u03a5\u0308\u0300", U"\u03a5\u0308\u0300"},
    {0x1fe3, U"\u03a5\u0308\u0301", U"\u03a5\u0308\u0301"},
    {0x1fe4, U"\u03a1\u0313", U"\u03a1\u0313"},
    {0x1fe6, U"\u03a5\u0342", U"\u03a5\u0342"},
    {0x1fe7, U"\u03a5\u0308\u0342", U"\u03a5\u0308\u0342"},
    {0x1ff2, U"\u1ffa\u0399", U"\u1ffa\u0345"},
    {0x1ff3, U"\u03a9\u0399", U"\u1ffc"},
    {0x1ff4, U"\u038f\u0399", U"\u038f\u0345"},
    {0x1ff6, U"\u03a9\u0342", U"\u03a9\u0342"},
    {0x1ff7, U"\u03a9\u0342\u0399", U"\u03a9\u0342\u0345"},
    {0x1ffc, U"\u03a9\u0399", U"\u1ffc"},
    {0xfb00, U"\u0046\u0046", U"\u0046\u0066"},
    {0xfb01, U"\u0046\u0049", U"\u0046\u0069"},
    {0xfb02, U"\u0046\u004c", U"\u0046\u006c"},
    {0xfb03, U"\u0046\u0046\u0049", U"\u0046\u0066\u0069"},
    {0xfb04, U"\u0046\u0046\u004c", U"\u0046\u0066\u006c"},
    {0xfb05, U"\u0053\u0054", U"\u0053\u0074"},
    {0xfb06, U"\u0053\u0054", U"\u0053\u0074"},
    {0xfb13, U"\u0544\u0546", U"\u0544\u0576"},
    {0xfb14, U"\u0544\u0535", U"\u0544\u0565"},
    {0xfb15, U"\u0544\u053b", U"\u0544\u056b"},
    {0xfb16, U"\u054e\u0546", U"\u054e\u0576"},
    {0xfb17, U"\u0544\u053d", U"\u0544\u056d"},
};

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

constexpr char32_t kCapitalSigma = 0x3a3;

utf8proc_category_t case_category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

struct Span {
  char32_t first, last;
};

// Unicode's Other_Lowercase and Other_Uppercase: characters used as letters, in other general categories.
constexpr Span kOtherLower[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},    {0x2e0, 0x2e4},
    {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},  {0x1d9b, 0x1dbf},
    {0x2071, 0x2071},   {0x207f, 0x207f},   {0x2090, 0x209c},   {0x2170, 0x217f},  {0x24d0, 0x24e9},
    {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},  {0xab5c, 0xab5f},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}};
constexpr Span kOtherUpper[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

bool within(char32_t c, std::span<const Span> spans) {
  return std::ranges::any_of(spans, [&](const Span& span) { return c >= span.first && c <= span.last; });
}

// Unicode's Case_Ignorable: characters between letters that do not end a word.
bool is_case_ignorable(char32_t c) {
  switch (case_category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  constexpr std::u32string_view others =
      U"'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a";
  return others.find(c) != std::u32string_view::npos;
}

std::string utf8_of(const char32_t* text) {
  std::string out;
  for (; *text; text++) append_code_point(out, *text);
  return out;
}

char32_t simple(utf8proc_int32_t (*map)(utf8proc_int32_t), char32_t c) {
  return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c)));
}

const SpecialCasing* special(char32_t c) {
  const auto found = std::ranges::lower_bound(kSpecialCasing, c, {}, &SpecialCasing::lower);
  return found != std::end(kSpecialCasing) && found->lower == c ? &*found : nullptr;
}

// A sigma at the end of a word has another form.
bool ends_word(std::span<const char32_t> text, size_t at) {
  size_t before = at, after = at + 1;
  while (before > 0 && is_case_ignorable(text[before - 1])) before--;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  while (after < text.size() && is_case_ignorable(text[after])) after++;
  return after == text.size() || !is_cased(text[after]);
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

bool is_upper(char32_t c) { return case_category(c) == UTF8PROC_CATEGORY_LU || within(c, kOtherUpper); }
bool is_lower(char32_t c) { return case_category(c) == UTF8PROC_CATEGORY_LL || within(c, kOtherLower); }
bool is_title(char32_t c) { return case_category(c) == UTF8PROC_CATEGORY_LT; }
bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

std::string upper_of(char32_t c) {
  if (const auto* found = special(c)) return utf8_of(found->upper);
  return utf8(simple(utf8proc_toupper, c));
}

std::string title_of(char32_t c) {
  if (const auto* found = special(c)) return utf8_of(found->title);
  return utf8(simple(utf8proc_totitle, c));
}

std::string lower_of(std::span<const char32_t> text, size_t at) {
  const char32_t c = text[at];
  if (c == kCapitalSigma) return ends_word(text, at) ? "\u03c2" : "\u03c3";
  if (c == 0x130) return "i\u0307";
  return utf8(simple(utf8proc_tolower, c));
}

std::string folded(char32_t c) {
  utf8proc_int32_t parts[8];
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 8, UTF8PROC_CASEFOLD, &boundary);
  std::string out;
  for (utf8proc_ssize_t i = 0; i < count; i++) append_code_point(out, static_cast<char32_t>(parts[i]));
  return out;
}

std::string lower(std::string_view text) {
  const std::vector<char32_t> all = code_points(text);
  std::string out;
  for (size_t at = 0; at < all.size(); at++) out += lower_of(all, at);
  return out;
}

}  // namespace trainer
