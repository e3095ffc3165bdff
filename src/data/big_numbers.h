// Numbers in JSON that do not fit in 64 bits. They are valid, but simdjson rejects a row that contains one.
#pragma once

#include <string>
#include <string_view>

namespace trainer {

// The only key of the object that replaces such a number; its value is the literal.
inline constexpr std::string_view kBigNumber = "\x01number";

// Returns the row with each such number replaced by that object. Anything that is not a valid JSON number is
// unchanged.
std::string with_big_numbers_as_objects(std::string_view json);

}  // namespace trainer
