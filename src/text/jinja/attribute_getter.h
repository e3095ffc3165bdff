// Finds the part of an item that a filter uses: "a.b.0".
#pragma once

#include <optional>
#include <vector>

#include "text/jinja/value.h"

namespace trainer::jinja {

class AttributeGetter {
 public:
  // `attribute` is a text, an integer, or None for the item itself. `fallback` replaces undefined values.
  explicit AttributeGetter(const Value& attribute, std::optional<Value> fallback = std::nullopt);
  Value operator()(const Value& item) const;

 private:
  List parts_;
  std::optional<Value> fallback_;
};

// Returns a text in lower case, and any other value unchanged.
Value without_case(const Value& value);

}  // namespace trainer::jinja
