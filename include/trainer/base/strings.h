// Small helpers for the text of messages.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// Writes the arguments one after the other, as operator<< does.
template <class... Args>
std::string concat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

// "a, b, c"
std::string join(const std::vector<std::string>& items, std::string_view separator = ", ");

// Returns UTF-8 text as one line of at most `characters` characters: "first\\nsecond…". Control characters
// become escapes, so that they have no effect on a terminal.
std::string one_line(std::string_view text, size_t characters);

// "[32, 128]"
std::string shape_string(const std::vector<int64_t>& shape);

// "1.25 GB" (powers of 1000)
std::string bytes_string(int64_t bytes);

// "2,850,000,000"
std::string grouped(int64_t number);

// "1 h 05 min", "3 min 20 s", "12 s"
std::string duration_string(double seconds);

// Returns the name in `known` that is closest to `name` by edit distance (with transpositions); "" when none
// is close.
std::string closest(const std::string& name, const std::vector<std::string>& known);

}  // namespace trainer
