#include "text/metrics/tokenize_13a.h"

#include <array>
#include <utility>

#include "text/metrics/words.h"

namespace trainer::metrics {
namespace {

// All character classes are ASCII, so single bytes can be tested. The bytes of longer characters are "not a
// digit" and stay together.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_point(char c) { return c == '.' || c == ','; }
// ASCII punctuation and the space, without ' , - and the period.
bool is_symbol(char c) {
  return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

std::string replaced(std::string text, std::string_view old, std::string_view by) {
  for (size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += by.size())
    text.replace(at, old.size(), by);
  return text;
}

// Like re.sub() with a pattern that matches two characters for which `holds` is true. The replacement is the
// two characters with the given texts before, between and after them.
template <class Holds>
std::string spaced(const std::string& text, const Holds& holds, std::string_view before,
                   std::string_view between, std::string_view behind) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    if (i + 1 < text.size() && holds(text[i], text[i + 1])) {
      ((out.append(before) += text[i]).append(between) += text[i + 1]).append(behind);
      i++;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string tokenize_13a(std::string_view line) {
  using Replacement = std::pair<std::string_view, std::string_view>;
  static constexpr std::array<Replacement, 7> replacements{{{"<skipped>", ""},
                                                            {"-\n", ""},
                                                            {"\n", " "},
                                                            {"&quot;", "\""},
                                                            {"&amp;", "&"},
                                                            {"&lt;", "<"},
                                                            {"&gt;", ">"}}};
  std::string text(line);
  for (const auto& [old, by] : replacements) text = replaced(std::move(text), old, by);
  std::string apart = " ";
  for (const char c : text) is_symbol(c) ? (apart.append(" ") += c).append(" ") : apart += c;
  apart += ' ';
  text = spaced(
      apart, [](char a, char b) { return !is_digit(a) && is_point(b); }, "", " ", " ");
  text = spaced(
      text, [](char a, char b) { return is_point(a) && !is_digit(b); }, " ", " ", "");
  text = spaced(
      text, [](char a, char b) { return is_digit(a) && b == '-'; }, "", " ", " ");
  return single_spaced(text);
}

}  // namespace trainer::metrics
