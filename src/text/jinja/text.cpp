#include "text/jinja/text.h"

#include <algorithm>

#include "text/unicode.h"
#include "text/utf8.h"

namespace trainer::jinja {

bool is_python_space(char32_t code_point) {
  return is_white_space(code_point) || (code_point >= 0x1c && code_point <= 0x1f);
}

std::vector<char32_t> code_points(std::string_view text) {
  std::vector<char32_t> out;
  for (size_t offset = 0; offset < text.size();) out.push_back(next_code_point(text, offset));
  return out;
}

std::string utf8(char32_t code_point) {
  std::string out;
  append_code_point(out, code_point);
  return out;
}

size_t Text::length() const {
  return static_cast<size_t>(
      std::ranges::count_if(bytes_, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::vector<size_t> Text::borders() const {
  std::vector<size_t> at;
  for (size_t i = 0; i < bytes_.size(); i++) {
    if ((static_cast<unsigned char>(bytes_[i]) & 0xc0) != 0x80) at.push_back(i);
  }
  at.push_back(bytes_.size());
  return at;
}

Text Text::strip(const Text* set, bool left, bool right) const {
  const std::vector<char32_t> characters = set ? code_points(set->bytes()) : std::vector<char32_t>();
  const auto goes = [&](size_t at) {
    const char32_t c = next_code_point(bytes_, at);
    return set ? std::ranges::find(characters, c) != characters.end() : is_python_space(c);
  };
  const auto step_back = [&](size_t at) {
    do at--;
    while ((static_cast<unsigned char>(bytes_[at]) & 0xc0) == 0x80);
    return at;
  };
  size_t begin = 0, end = bytes_.size();
  while (left && begin < end && goes(begin)) next_code_point(bytes_, begin);
  while (right && end > begin && goes(step_back(end))) end = step_back(end);
  return slice(begin, end);
}

Text join(const std::vector<Text>& pieces, const Text& separator) {
  Text out;
  for (size_t i = 0; i < pieces.size(); i++) {
    if (i) out.append(separator);
    out.append(pieces[i]);
  }
  return out;
}

}  // namespace trainer::jinja
