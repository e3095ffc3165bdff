// What the JSON of a row must not contain: nlohmann::json accepts it, but the result is wrong or crashes.
#pragma once

#include <optional>
#include <string_view>

namespace trainer {

// Returns the first number outside of strings, at or after byte `from`, that fits neither in int64 or uint64
// (an integer) nor in double (any other number). Text that is not a valid JSON number is skipped. The view is
// a part of `json`.
std::optional<std::string_view> number_beyond_64_bits(std::string_view json, size_t from = 0);

// Returns the first integer outside of strings that does not fit in int64 or uint64, or nullopt.
// nlohmann::json would round it to a double.
std::optional<std::string_view> integer_beyond_64_bits(std::string_view json);

// Returns whether lists and objects are nested deeper than `deepest`. Copying or writing such JSON would
// overflow the stack.
bool nested_too_deep(std::string_view json, int deepest = 1000);

}  // namespace trainer
