#include "text/jinja/filters.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace trainer::jinja {

Filter find_filter(const std::string& name) {
  for (const auto find :
       {find_text_filter, find_number_filter, find_sequence_filter, find_selecting_filter}) {
    if (const Filter filter = find(name)) return filter;
  }
  return nullptr;
}

bool is_foreign_filter(const std::string& name) {
  constexpr std::array<std::string_view, 9> foreign = {"filesizeformat", "groupby",   "pprint",
                                                       "random",         "striptags", "urlencode",
                                                       "urlize",         "wordwrap",  "xmlattr"};
  return std::ranges::find(foreign, name) != foreign.end();
}

}  // namespace trainer::jinja
