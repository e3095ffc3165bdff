#include "text/jinja/text_case.h"

#include "text/unicode/letter_case.h"
#include "text/unicode/utf8.h"

namespace trainer::jinja {

// Each character mapped with its place among the others.
template <class Map>
static Text mapped(const Text& text, const Map& map) {
  const std::vector<char32_t> all = code_points(text.bytes());
  size_t at = 0;
  return text.mapped([&](const Text&) { return Text(map(all, at++)); });
}

Text upper(const Text& text) {
  return mapped(text, [](const auto& all, size_t at) { return upper_of(all[at]); });
}

Text lower(const Text& text) {
  return mapped(text, [](const auto& all, size_t at) { return lower_of(all, at); });
}

Text capitalize(const Text& text) {
  return mapped(text, [](const auto& all, size_t at) { return at ? lower_of(all, at) : title_of(all[0]); });
}

Text swap_case(const Text& text) {
  return mapped(text, [](const auto& all, size_t at) {
    if (is_upper(all[at])) return lower_of(all, at);
    return is_lower(all[at]) ? upper_of(all[at]) : utf8(all[at]);
  });
}

Text title(const Text& text) {
  return mapped(text, [](const auto& all, size_t at) {
    return at && is_cased(all[at - 1]) ? lower_of(all, at) : title_of(all[at]);
  });
}

Text case_fold(const Text& text) {
  return mapped(text, [](const auto& all, size_t at) { return folded(all[at]); });
}

}  // namespace trainer::jinja
