#include "text/jinja/text_case.h"

#include <span>

#include "text/unicode/letter_case.h"
#include "text/unicode/utf8.h"

namespace trainer::jinja {
namespace {

// Maps each character, by its index among all of them.
template <class Map>
Text changed_case(const Text& text, const Map& map) {
  const auto all = text.characters();
  const std::span<const char32_t> view = all;
  return text.mapped([&](size_t at) { return map(view, at); });
}

}  // namespace

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

}  // namespace trainer::jinja
