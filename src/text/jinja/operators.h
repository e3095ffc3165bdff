// The operators of templates, with Python's meaning. All throw RenderError where Python raises.
#pragma once

#include <string>

#include "text/jinja/value.h"

namespace trainer::jinja {

Value add(const Value& a, const Value& b);
Value subtract(const Value& a, const Value& b);
Value multiply(const Value& a, const Value& b);
Value divide(const Value& a, const Value& b);
Value floor_divide(const Value& a, const Value& b);
Value modulo(const Value& a, const Value& b);  // a text `a`: printf formatting
Value power(const Value& a, const Value& b);
Value negate(const Value& a);
Value plus(const Value& a);

bool contains(const Value& container, const Value& item);

// The items that a loop over the value gets.
List iterate(const Value& value);
int64_t length(const Value& value);

// value[index], else the attribute of that name, else undefined.
Value get_item(const Value& value, const Value& index);
// value.name, else value["name"], else undefined.
Value get_attribute(const Value& value, const std::string& name);
// value[start:stop:step]; None for a part that is left out.
Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step);

}  // namespace trainer::jinja
