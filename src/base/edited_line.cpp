#include "base/edited_line.h"

#include <algorithm>
#include <unordered_map>
#include <utf8proc.h>
#include <utility>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

constexpr std::string_view kPasteBegin = "\x1b[200~", kPasteEnd = "\x1b[201~";

const std::unordered_map<char, Key>& control_keys() {
  static const std::unordered_map<char, Key> keys{
      {'\r', Key::enter},        {'\n', Key::enter},          {'\x01', Key::home},
      {'\x02', Key::left},       {'\x03', Key::interrupt},    {'\x04', Key::end_of_input},
      {'\x05', Key::end},        {'\x06', Key::right},        {'\x08', Key::backspace},
      {'\x0b', Key::cut_to_end}, {'\x0c', Key::clear_screen}, {'\x0e', Key::down},
      {'\x10', Key::up},         {'\x15', Key::cut_to_start}, {'\x17', Key::cut_word},
      {'\x19', Key::insert_cut}, {'\x1a', Key::suspend},      {'\x7f', Key::backspace}};
  return keys;
}

// As xterm and the Linux console send them.
const std::unordered_map<std::string_view, Key>& escape_keys() {
  static const std::unordered_map<std::string_view, Key> keys{{"\x1b[A", Key::up},
                                                              {"\x1bOA", Key::up},
                                                              {"\x1b[B", Key::down},
                                                              {"\x1bOB", Key::down},
                                                              {"\x1b[C", Key::right},
                                                              {"\x1bOC", Key::right},
                                                              {"\x1b[D", Key::left},
                                                              {"\x1bOD", Key::left},
                                                              {"\x1b[H", Key::home},
                                                              {"\x1bOH", Key::home},
                                                              {"\x1b[1~", Key::home},
                                                              {"\x1b[7~", Key::home},
                                                              {"\x1b[F", Key::end},
                                                              {"\x1bOF", Key::end},
                                                              {"\x1b[4~", Key::end},
                                                              {"\x1b[8~", Key::end},
                                                              {"\x1b[3~", Key::erase},
                                                              {"\x1b[1;5D", Key::word_left},
                                                              {"\x1b[1;3D", Key::word_left},
                                                              {"\x1b"
                                                               "b",
                                                               Key::word_left},
                                                              {"\x1b[1;5C", Key::word_right},
                                                              {"\x1b[1;3C", Key::word_right},
                                                              {"\x1b"
                                                               "f",
                                                               Key::word_right},
                                                              {"\x1b\x7f", Key::cut_word}};
  return keys;
}

// Of a character in UTF-8 by its first byte; 0 if none begins with it.
size_t length_by_first(char byte) {
  const auto first = static_cast<unsigned char>(byte);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// Returns the length of the character at the beginning of `text`; a byte that begins none counts alone.
size_t read_character(std::string_view text, utf8proc_int32_t& code_point) {
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                       static_cast<utf8proc_ssize_t>(text.size()), &code_point);
  if (length > 0) return static_cast<size_t>(length);
  code_point = 0xfffd;
  return 1;
}

bool is_valid(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t code_point = 0;
    const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                         static_cast<utf8proc_ssize_t>(text.size() - at), &code_point);
    if (length <= 0) return false;
    at += static_cast<size_t>(length);
  }
  return true;
}

}  // namespace

std::optional<Pressed> KeyDecoder::add(char byte) {
  if (pasting_) return add_pasted(byte);
  if (!pending_.empty()) return pending_.front() == '\x1b' ? add_escape(byte) : add_character(byte);
  if (byte == '\x1b') {
    pending_ = byte;
    return std::nullopt;
  }
  if (const auto found = control_keys().find(byte); found != control_keys().end())
    return Pressed{found->second};
  if (byte == '\t') return Pressed{Key::text, " "};
  if (static_cast<unsigned char>(byte) < 0x20) return std::nullopt;
  return add_character(byte);
}

// ESC [ parameters letter, ESC O letter, ESC letter.
std::optional<Pressed> KeyDecoder::add_escape(char byte) {
  pending_ += byte;
  if (pending_.size() == 2 && (byte == '[' || byte == 'O')) return std::nullopt;
  const bool ends = pending_.size() == 2 || pending_[1] == 'O' || (byte >= '@' && byte <= '~');
  if (!ends && pending_.size() < 16) return std::nullopt;
  const std::string sequence = std::exchange(pending_, "");
  if (sequence == kPasteBegin) {
    pasting_ = true;
    return std::nullopt;
  }
  const auto found = escape_keys().find(sequence);
  return found == escape_keys().end() ? std::nullopt : std::optional(Pressed{found->second});
}

std::optional<Pressed> KeyDecoder::add_pasted(char byte) {
  pasted_ += byte == '\r' ? '\n' : byte;
  if (!pasted_.ends_with(kPasteEnd)) return std::nullopt;
  pasting_ = false;
  std::string text = std::exchange(pasted_, "");
  text.resize(text.size() - kPasteEnd.size());
  while (text.ends_with('\n')) text.pop_back();
  if (text.empty() || !is_valid(text)) return std::nullopt;
  return Pressed{Key::text, std::move(text)};
}

std::optional<Pressed> KeyDecoder::add_character(char byte) {
  if (!pending_.empty() && !is_continuation(byte)) {  // the character before is not complete
    pending_.clear();
    return add(byte);
  }
  pending_ += byte;
  const size_t length = length_by_first(pending_.front());
  if (length > pending_.size()) return std::nullopt;
  std::string character = std::exchange(pending_, "");
  if (length == 0 || !is_valid(character)) return std::nullopt;
  return Pressed{Key::text, std::move(character)};
}

size_t EditedLine::before(size_t at) const {
  if (at == 0) return 0;
  do at--;
  while (at > 0 && is_continuation(text_[at]));
  return at;
}

size_t EditedLine::after(size_t at) const {
  if (at == text_.size()) return at;
  do at++;
  while (at < text_.size() && is_continuation(text_[at]));
  return at;
}

size_t EditedLine::word_before(size_t at) const {
  const auto is_space = [&](size_t i) { return text_[i] == ' ' || text_[i] == '\n'; };
  while (at > 0 && is_space(at - 1)) at--;
  while (at > 0 && !is_space(at - 1)) at--;
  return at;
}

size_t EditedLine::word_after(size_t at) const {
  const auto is_space = [&](size_t i) { return text_[i] == ' ' || text_[i] == '\n'; };
  while (at < text_.size() && is_space(at)) at++;
  while (at < text_.size() && !is_space(at)) at++;
  return at;
}

void EditedLine::cut(size_t begin, size_t end) {
  if (begin == end) return;
  cut_ = text_.substr(begin, end - begin);
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

void EditedLine::recall(size_t index) {
  if (recalled_ == earlier_.size()) typed_ = text_;
  recalled_ = index;
  text_ = index == earlier_.size() ? typed_ : earlier_[index];
  cursor_ = text_.size();
}

void EditedLine::press(const Pressed& pressed) {
  const auto erase = [&](size_t begin, size_t end) {
    text_.erase(begin, end - begin);
    cursor_ = begin;
  };
  const auto insert = [&](const std::string& text) {
    text_.insert(cursor_, text);
    cursor_ += text.size();
  };
  switch (pressed.key) {
    case Key::text:
      return insert(pressed.text);
    case Key::insert_cut:
      return insert(cut_);
    case Key::left:
      cursor_ = before(cursor_);
      return;
    case Key::right:
      cursor_ = after(cursor_);
      return;
    case Key::word_left:
      cursor_ = word_before(cursor_);
      return;
    case Key::word_right:
      cursor_ = word_after(cursor_);
      return;
    case Key::home:
      cursor_ = 0;
      return;
    case Key::end:
      cursor_ = text_.size();
      return;
    case Key::backspace:
      return erase(before(cursor_), cursor_);
    case Key::erase:
      return erase(cursor_, after(cursor_));
    case Key::cut_word:
      return cut(word_before(cursor_), cursor_);
    case Key::cut_to_start:
      return cut(0, cursor_);
    case Key::cut_to_end:
      return cut(cursor_, text_.size());
    case Key::up:
      if (recalled_ > 0) recall(recalled_ - 1);
      return;
    case Key::down:
      if (recalled_ < earlier_.size()) recall(recalled_ + 1);
      return;
    case Key::enter:
    case Key::clear_screen:
    case Key::interrupt:
    case Key::end_of_input:
    case Key::suspend:
      return;
  }
}

void EditedLine::clear() {
  text_.clear();
  typed_.clear();
  cursor_ = 0;
  recalled_ = earlier_.size();
}

std::string EditedLine::take() {
  std::string line = text_;
  if (!line.empty() && (earlier_.empty() || earlier_.back() != line)) earlier_.push_back(line);
  clear();
  return line;
}

EditedLine::View EditedLine::view(size_t width) const {
  struct Piece {
    std::string text;
    size_t columns;
  };
  std::vector<Piece> pieces;
  size_t cursor = 0;  // as an index of pieces
  for (size_t at = 0; at < text_.size();) {
    if (at < cursor_) cursor = pieces.size() + 1;
    utf8proc_int32_t code_point = 0;
    const size_t length = read_character(std::string_view(text_).substr(at), code_point);
    if (code_point < 0x20 || code_point == 0x7f) {
      std::string shown = one_line(text_.substr(at, length), 8);
      const size_t columns = shown.size();
      pieces.push_back({std::move(shown), columns});
    } else {
      pieces.push_back(
          {text_.substr(at, length), static_cast<size_t>(std::max(utf8proc_charwidth(code_point), 0))});
    }
    at += length;
  }
  // The cursor's own column is left free at the end.
  const size_t room = std::max<size_t>(width, 2) - 1;
  size_t begin = cursor, column = 0;
  while (begin > 0 && column + pieces[begin - 1].columns <= room) column += pieces[--begin].columns;
  View view{"", column, cursor_ == text_.size()};
  size_t columns = 0;
  for (size_t i = begin; i < pieces.size() && columns + pieces[i].columns <= room; i++) {
    view.text += pieces[i].text;
    columns += pieces[i].columns;
  }
  return view;
}

}  // namespace trainer
