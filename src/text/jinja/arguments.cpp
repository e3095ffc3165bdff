#include "text/jinja/arguments.h"

#include <algorithm>

#include "trainer/base/strings.h"

namespace trainer::jinja {

Bound::Bound(const std::string& function, const Arguments& arguments,
             std::initializer_list<const char*> names, size_t required)
    : function_(function), values_(names.size()) {
  Budget::spend(8 + 4 * names.size() + 4 * arguments.named.size());
  if (arguments.positional.size() > names.size()) {
    throw RenderError(concat(function, " takes at most ", names.size(), " arguments (",
                             arguments.positional.size(), " given)"));
  }
  std::ranges::copy(arguments.positional, values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      throw RenderError(concat(function, " got an unexpected keyword argument '", name, "'"));
    }
    std::optional<Value>& place = values_[static_cast<size_t>(found - names.begin())];
    if (place) throw RenderError(concat(function, " got multiple values for argument '", name, "'"));
    place = value;
  }
  for (size_t i = 0; i < required; i++) {
    if (!values_[i]) throw RenderError(concat(function, " misses its argument '", names.begin()[i], "'"));
  }
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
  if (!values_[i]) return fallback;
  if (values_[i]->is_integral()) return values_[i]->integer();
  throw RenderError(concat(function_, " wants an integer, not '", values_[i]->type_name(), "'"));
}

Text Bound::text(size_t i, const char* fallback) const {
  if (!values_[i]) return Text(fallback);
  if (values_[i]->is(Kind::text)) return values_[i]->text();
  throw RenderError(concat(function_, " wants a string, not '", values_[i]->type_name(), "'"));
}

}  // namespace trainer::jinja
