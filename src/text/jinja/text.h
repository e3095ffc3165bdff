// A string of a template. Every string operation of the interpreter is made of slices, appended pieces and
// maps of single characters, which are members of this class: what is to be known about characters besides
// their value (which message they come from) has one place to live in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::jinja {

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool safe = false) : bytes_(std::move(bytes)), safe_(safe) {}

  const std::string& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  // Marked by `safe` (Markup in Python).
  bool safe() const { return safe_; }

  // The bytes from `begin` up to `end`, both at the borders of characters; marked as this.
  Text slice(size_t begin, size_t end) const { return Text(bytes_.substr(begin, end - begin), safe_); }
  Text& append(const Text& other) {
    bytes_ += other.bytes_;
    return *this;
  }
  Text& append(std::string_view literal) {
    bytes_ += literal;
    return *this;
  }
  // The same characters with another mark.
  Text marked(bool safe) const { return Text(bytes_, safe); }

  // Characters are code points, as in Python.
  size_t length() const;
  // Where each character begins, and at last the end.
  std::vector<size_t> borders() const;
  // Without the characters of the set at its ends; nullptr: without white space.
  Text strip(const Text* set, bool left, bool right) const;
  // Each character replaced by what `map` gives for it.
  template <class Map>
  Text mapped(const Map& map) const;

 private:
  std::string bytes_;
  bool safe_ = false;
};

// What str.isspace() says of one character.
bool is_python_space(char32_t code_point);

std::vector<char32_t> code_points(std::string_view text);
std::string utf8(char32_t code_point);

// The pieces with `separator` between them.
Text join(const std::vector<Text>& pieces, const Text& separator);

template <class Map>
Text Text::mapped(const Map& map) const {
  const std::vector<size_t> at = borders();
  Text out;
  for (size_t i = 0; i + 1 < at.size(); i++) out.append(map(slice(at[i], at[i + 1])));
  return out;
}

}  // namespace trainer::jinja
