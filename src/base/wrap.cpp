#include "base/wrap.h"

#include <algorithm>
#include <sstream>

namespace trainer {
namespace {

std::string missing(const std::string& text, size_t width) {
  const size_t there = count_characters(text);
  return std::string(width > there ? width - there : 0, ' ');
}

}  // namespace

size_t count_characters(std::string_view text) {
  const auto begins = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; };
  return static_cast<size_t>(std::ranges::count_if(text, begins));
}

std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string given; std::getline(in, given);) {
    std::istringstream words(given);
    std::string line;
    for (std::string word; words >> word;) {
      if (width > 0 && !line.empty() && count_characters(line) + 1 + count_characters(word) > width) {
        lines.push_back(line);
        line.clear();
      }
      line += (line.empty() ? "" : " ") + word;
    }
    lines.push_back(line);
  }
  return lines;
}

std::string padded_left(const std::string& text, size_t width) { return missing(text, width) + text; }
std::string padded_right(const std::string& text, size_t width) { return text + missing(text, width); }

}  // namespace trainer
