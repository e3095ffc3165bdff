// JSON's numbers that fit in no type of 64 bits: valid, but simdjson refuses the row that has one.
#pragma once

#include <string>
#include <string_view>

namespace trainer {

// The only key of the object that stands for such a number; its value is the literal.
inline constexpr std::string_view kBigNumber = "\x01number";

// The row with each such number as that object. What is no number as JSON writes it stays.
std::string with_big_numbers_as_objects(std::string_view json);

}  // namespace trainer
