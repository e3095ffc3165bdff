// A line while it is typed on a terminal: keys, text, cursor, earlier lines. Knows nothing of the terminal
// itself.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

enum class Key {
  text,
  enter,
  left,
  right,
  word_left,
  word_right,
  home,
  end,
  up,
  down,
  backspace,
  erase,         // the character under the cursor
  cut_word,      // before the cursor
  cut_to_start,  // of the line
  cut_to_end,
  insert_cut,  // what was cut last
  clear_screen,
  interrupt,  // Ctrl-C
  end_of_input,
  suspend,
};

struct Pressed {
  Key key;
  std::string text = {};  // of Key::text: a character in UTF-8, or a pasted text
};

// Turns the bytes that a terminal sends into keys. What it does not know, and bytes that are not UTF-8, give
// nothing.
class KeyDecoder {
 public:
  // Returns the key that this byte completes.
  std::optional<Pressed> add(char byte);

 private:
  std::optional<Pressed> add_escape(char byte);
  std::optional<Pressed> add_pasted(char byte);
  std::optional<Pressed> add_character(char byte);

  std::string pending_;  // the beginning of an escape sequence, or of a character
  std::string pasted_;
  bool pasting_ = false;
};

class EditedLine {
 public:
  // Applies a key that changes the text or the cursor. Others do nothing.
  void press(const Pressed& pressed);
  const std::string& text() const { return text_; }
  void clear();

  // Clears the line and keeps its text among the earlier ones, unless it is empty or repeats the last one.
  std::string take();

  // What a terminal shows: the part of the text around the cursor that fits into `width` columns, with
  // control characters as escapes, and the column of the cursor in it.
  struct View {
    std::string text;
    size_t cursor = 0;
    bool at_end = true;  // the cursor stands behind the text
  };
  View view(size_t width) const;

 private:
  size_t before(size_t at) const;  // the beginning of the character that ends at `at`
  size_t after(size_t at) const;
  size_t word_before(size_t at) const;
  size_t word_after(size_t at) const;
  void cut(size_t begin, size_t end);
  void recall(size_t index);

  std::string text_, cut_, typed_;  // typed_: the new line, while an earlier one is shown
  size_t cursor_ = 0;               // in bytes
  std::vector<std::string> earlier_;
  size_t recalled_ = 0;  // index in earlier_; its size: the new line
};

}  // namespace trainer
