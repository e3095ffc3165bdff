// A string of a template. All string operations of the interpreter are built from the members of this class:
// slices, appends, and replaced characters. That is how each character keeps its origin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "text/jinja/budget.h"

namespace trainer::jinja {

// The origin of a character in a rendered conversation: a message, and a part of it.

class Origin {
 public:
  enum class Part : uint32_t {
    written,  // by the template, in the turn of a message
    role,     // the message's role
    said,     // any other string of the message
  };

  Origin() = default;  // unknown: a literal of the template
  Origin(size_t message, Part part)
      : bits_(static_cast<uint32_t>(message + 1) << 3 | static_cast<uint32_t>(part) << 1) {}

  bool is_known() const { return bits_ != 0; }
  bool has_message() const { return bits_ >> 3 != 0; }
  size_t message() const { return (bits_ >> 3) - 1; }  // only if has_message()
  Part part() const { return static_cast<Part>(bits_ >> 1 & 3); }
  bool is_generated() const { return (bits_ & 1) != 0; }
  Origin in_generation() const {
    Origin out = *this;
    out.bits_ |= 1;
    return out;
  }
  bool operator==(const Origin&) const = default;

 private:
  uint32_t bits_ = 0;
};

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool safe = false) : bytes_(std::move(bytes)), safe_(safe) { count(); }
  Text(std::string bytes, Origin origin) : bytes_(std::move(bytes)), origin_(origin) { count(); }
  Text(const Text& other)
      : bytes_((Budget::spend_bytes(other.bytes_.size()), other.bytes_)),
        safe_(other.safe_),
        origin_(other.origin_),
        ends_((Budget::spend(other.ends_.size()), other.ends_)) {
    count();
  }
  Text(Text&&) noexcept = default;
  Text& operator=(const Text& other) { return *this = Text(other); }
  Text& operator=(Text&&) noexcept = default;
  ~Text() = default;

  const std::string& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  // Marked by `safe` (Markup in Python).
  bool safe() const { return safe_; }

  // The bytes from `begin` to `end`, which must not split a character. The mark stays.
  Text slice(size_t begin, size_t end) const;
  Text& append(const Text& other) { return append(other, Origin()); }
  Text& append(std::string_view literal) { return append(literal, Origin()); }
  // Characters of unknown origin get this one.
  Text& append(const Text& other, Origin origin);
  Text& append(std::string_view literal, Origin origin) {
    require_room(literal.size());
    add_run(literal.size(), origin);
    bytes_ += literal;
    count();
    return *this;
  }
  // The same characters with another mark.
  Text marked(bool safe) const {
    Text out = *this;
    out.safe_ = safe;
    return out;
  }

  // Neighboring characters with the same origin. In order, the runs are the text.
  struct Run {
    size_t begin, end;
    Origin origin;
  };
  CountedVector<Run> runs() const;
  // The same text; characters of unknown origin get this one.
  Text from(Origin origin) const { return Text("", safe_).append(*this, origin); }
  // The same text, as written inside {% generation %}.
  Text generated() const;

  // Characters are code points, as in Python.
  size_t length() const;
  // The byte at which character number `index` begins; for length(), the end.
  size_t offset(size_t index) const;
  // Returns the byte at which each character begins, then the end.
  CountedVector<size_t> borders() const;
  // Returns all characters.
  CountedVector<char32_t> characters() const;
  // Removes the characters of the set from the ends; nullptr: white space.
  Text strip(const Text* set, bool left, bool right) const;
  // Replaces each character by what `replace(c)` returns; "" leaves it as it is. The replacement has the
  // character's origin.
  template <class Replace>
  Text replaced(const Replace& replace) const;
  // Replaces each character by what `map(i)` returns, where i is its index.
  template <class Map>
  Text mapped(const Map& map) const;

 private:
  // Checks that `size` bytes can be appended. Throws OutOfBudget.
  void require_room(size_t size) const {
    Budget::spend_bytes(size);
    if (size > Budget::kLongestText || bytes_.size() + size > Budget::kLongestText) too_long();
  }
  [[noreturn]] static void too_long();
  // Counts the memory of bytes_; short strings have none.
  void count() { charge_.set(bytes_.capacity() > 15 ? bytes_.capacity() : 0); }
  // Records the origin of `size` bytes, which the caller appends.
  void add_run(size_t size, Origin origin);

  struct End {
    size_t end;
    Origin origin;
  };
  std::string bytes_;
  bool safe_ = false;
  Origin origin_;            // of all characters, if they have one origin
  CountedVector<End> ends_;  // otherwise the ends of the runs, in ascending order
  Charge charge_;
};

// Appends pieces with a separator between them.
class Joined {
 public:
  explicit Joined(Text separator) : separator_(std::move(separator)) {}
  void add(const Text& piece) {
    if (!first_) text_.append(separator_);
    first_ = false;
    text_.append(piece);
  }
  Text take() { return std::move(text_); }

 private:
  const Text separator_;
  Text text_;
  bool first_ = true;
};

template <class Replace>
Text Text::replaced(const Replace& replace) const {
  const std::string_view bytes = bytes_;
  Text out;
  for (const Run& run : runs()) {
    size_t begin = run.begin;  // where the text begins that is not appended yet
    for (size_t at = run.begin; at < run.end;) {
      Budget::spend(2);
      const size_t here = at;
      const std::string replacement = replace(next_code_point(bytes, at));
      if (replacement.empty()) continue;
      out.append(bytes.substr(begin, here - begin), run.origin).append(replacement, run.origin);
      begin = at;
    }
    out.append(bytes.substr(begin, run.end - begin), run.origin);
  }
  return out;
}

template <class Map>
Text Text::mapped(const Map& map) const {
  Text out;
  size_t index = 0;
  for (const Run& run : runs()) {
    std::string written;
    for (size_t at = run.begin; at < run.end; at += character_length(bytes_, at)) {
      Budget::spend(5);
      written += map(index++);
    }
    out.append(written, run.origin);
  }
  return out;
}

// Upper, lower and title case of texts. Each character keeps its origin.

Text upper(const Text& text);
Text lower(const Text& text);
Text capitalize(const Text& text);  // the first character in title case, the others lower
Text swap_case(const Text& text);
Text title(const Text& text);  // str.title()
Text case_fold(const Text& text);

// str.isalpha() and others: whether all characters are of one kind.

bool is_alnum(const Text& text);
bool is_alpha(const Text& text);
bool is_ascii(const Text& text);
bool is_decimal(const Text& text);
bool is_digit(const Text& text);  // throws Unsupported for digits that are not decimal, such as superscripts
bool is_lower_text(const Text& text);
bool is_printable_text(const Text& text);
bool is_space_text(const Text& text);
bool is_title_text(const Text& text);
bool is_upper_text(const Text& text);

bool is_printable(char32_t c);

}  // namespace trainer::jinja
