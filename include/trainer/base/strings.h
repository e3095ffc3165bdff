// Small helpers for the text of messages.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// The arguments written one after the other, as operator<< writes them.
template <class... Args>
std::string concat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

// "a, b, c"
std::string join(const std::vector<std::string>& items, std::string_view separator = ", ");

// A text of UTF-8 in a line of at most so many characters: "first\\nsecond…". Control characters are shown as
// escapes, so that a terminal does not obey them.
std::string one_line(std::string_view text, size_t characters);

// "[32, 128]"
std::string shape_string(const std::vector<int64_t>& shape);

// "1.25 GB" (powers of 1000)
std::string bytes_string(int64_t bytes);

// "2,850,000,000"
std::string grouped(int64_t number);

// "1 h 05 min", "3 min 20 s", "12 s"
std::string duration_string(double seconds);

// Of `known`, the name closest to `name` by edit distance (with transpositions), "" when none is close.
std::string closest(const std::string& name, const std::vector<std::string>& known);

}  // namespace trainer
