// "a.b.0": where a filter finds what it works on inside the items.
#pragma once

#include <optional>
#include <vector>

#include "text/jinja/value.h"

namespace trainer::jinja {

class AttributeGetter {
 public:
  // `attribute`: a text or an integer, or None for the item itself. `fallback` stands in for what is
  // undefined.
  explicit AttributeGetter(const Value& attribute, std::optional<Value> fallback = std::nullopt);
  Value operator()(const Value& item) const;

 private:
  List parts_;
  std::optional<Value> fallback_;
};

// Texts in lower case, everything else as it is.
Value without_case(const Value& value);

}  // namespace trainer::jinja
