// What JSON of a row must not hold, because nlohmann::json takes it and what comes after is wrong.
#pragma once

#include <optional>
#include <string_view>

namespace trainer {

// The first integer outside of strings that neither int64 nor uint64 holds, of which nlohmann::json makes a
// rounded double.
std::optional<std::string_view> integer_beyond_64_bits(std::string_view json);

// Whether lists and objects are in each other deeper than that: copying and writing them would exhaust the
// stack.
bool nested_too_deep(std::string_view json, int deepest = 1000);

}  // namespace trainer
