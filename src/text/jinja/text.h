// A string of a template. Every string operation of the interpreter is built from slices, appends and maps of
// single characters, which are members of this class. That is how each character keeps its origin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/origin.h"

namespace trainer::jinja {

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool safe = false) : bytes_(std::move(bytes)), safe_(safe) {}
  Text(std::string bytes, Origin origin) : bytes_(std::move(bytes)), origin_(origin) {}

  const std::string& bytes() const { return bytes_; }
  // On the heap.
  size_t bytes_held() const { return bytes_.capacity() + ends_.capacity() * sizeof(End); }
  bool empty() const { return bytes_.empty(); }
  // Marked by `safe` (Markup in Python).
  bool safe() const { return safe_; }

  // The bytes from `begin` up to `end`, both at the borders of characters; marked as this.
  Text slice(size_t begin, size_t end) const;
  Text& append(const Text& other) { return append(other, Origin()); }
  Text& append(std::string_view literal) { return append(literal, Origin()); }
  // `origin` is that of what has none.
  Text& append(const Text& other, Origin origin);
  Text& append(std::string_view literal, Origin origin) {
    require_room(literal.size());
    add_run(literal.size(), origin);
    bytes_ += literal;
    return *this;
  }
  // The same characters with another mark.
  Text marked(bool safe) const {
    Text out = *this;
    out.safe_ = safe;
    return out;
  }

  // Neighbouring characters of one origin, in order; all of them together are the text.
  struct Run {
    size_t begin, end;
    Origin origin;
  };
  std::vector<Run> runs() const;
  // The same characters, what has no origin from `origin`.
  Text from(Origin origin) const { return Text("", safe_).append(*this, origin); }
  // All of it inside {% generation %}.
  Text generated() const;

  // Characters are code points, as in Python.
  size_t length() const;
  // Where each character begins, and at last the end.
  std::vector<size_t> borders() const;
  // Without the characters of the set at its ends; nullptr: without white space.
  Text strip(const Text* set, bool left, bool right) const;
  // Each character replaced by what `map` gives for it; that comes from where the character does.
  template <class Map>
  Text mapped(const Map& map) const;

 private:
  // For some bytes more. Throws OutOfBudget.
  void require_room(size_t size) const {
    Budget::spend_bytes(size);
    if (size > Budget::kLongestText || bytes_.size() + size > Budget::kLongestText) too_long();
  }
  [[noreturn]] static void too_long();
  // Some bytes more, of one origin, which the caller appends.
  void add_run(size_t size, Origin origin);

  struct End {
    size_t end;
    Origin origin;
  };
  std::string bytes_;
  bool safe_ = false;
  Origin origin_;          // of all characters, where there is only one
  std::vector<End> ends_;  // else: where runs end, rising
};

// The pieces with `separator` between them.
Text join(const std::vector<Text>& pieces, const Text& separator);

template <class Map>
Text Text::mapped(const Map& map) const {
  const std::vector<size_t> at = borders();
  Text out;
  for (size_t i = 0; i + 1 < at.size(); i++) {
    const Text character = slice(at[i], at[i + 1]);
    out.append(map(character), character.origin_);
  }
  return out;
}

}  // namespace trainer::jinja
