// Filters and tests by name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace trainer::jinja {

using Filter = Value (*)(const Value& value, const Arguments& arguments);
using Test = bool (*)(const Value& value, const Arguments& arguments);

// Each returns nullptr if there is none with that name.
Filter find_filter(const std::string& name);
Test find_test(const std::string& name);

// Returns whether jinja2 has a filter with this name that is not supported here.
bool is_foreign_filter(const std::string& name);

// The filters by subject.
Filter find_text_filter(const std::string& name);
Filter find_number_filter(const std::string& name);
Filter find_sequence_filter(const std::string& name);
Filter find_selecting_filter(const std::string& name);

// Finds the part of an item that a filter uses: "a.b.0".

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
