// Writes numbers as text, as both "%..." and format() do.
#pragma once

#include <string>

#include "text/jinja/value.h"

namespace trainer::jinja {

struct NumberFormat {
  char type = 'd';     // d x X o b, or e E f F g G
  int precision = -1;  // for e, f, g; -1: 6
  bool alternate = false;
};

// Without sign: "ff" or "0xff", "1.500000". `value` is a number that fits the type.
std::string format_magnitude(const Value& value, const NumberFormat& format);
// "-" for a negative number, otherwise "", "+" or " ".
std::string sign_of(const Value& value, char positive);

}  // namespace trainer::jinja
