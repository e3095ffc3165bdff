#include "cli/chat_text.h"

#include <algorithm>
#include <limits>

#include "trainer/base/strings.h"

namespace trainer::cli {
namespace {

std::string marked(const std::string& text, bool colour) {
  return colour ? "\x1b[32m" + text + "\x1b[0m" : "[[" + text + "]]";
}

std::string escaped(std::string_view text) { return one_line(text, std::numeric_limits<size_t>::max()); }

// Each line by itself, so that a colour never runs on into the next one.
void append_text(std::string& out, std::string_view text, bool learn, bool colour) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line = escaped(text.substr(0, end));
    if (!line.empty()) out += learn ? marked(line, colour) : line;
    if (end == text.size()) return;
    out += "\n    ";
    text.remove_prefix(end + 1);
  }
}

std::string marked_text(const ChatTokens& chat, bool colour) {
  const std::string_view text = chat.text;
  std::string out = "    ";
  if (chat.ranges.empty()) {
    append_text(out, text, true, colour);
    return out;
  }
  size_t begin = 0;
  for (size_t i = 0; i < chat.ids.size();) {
    const bool learn = chat.learn[i];
    size_t end = begin;
    for (; i < chat.ids.size() && chat.learn[i] == learn; i++) end = std::max(end, chat.ranges[i].end);
    append_text(out, text.substr(begin, end - begin), learn, colour);
    begin = end;
  }
  append_text(out, text.substr(begin), false, colour);
  return out;
}

std::string marked_ids(const ChatTokens& chat, const Terminal& terminal) {
  const size_t width = std::max<size_t>(terminal.width, 40);
  std::string out = "   ";
  size_t column = 3;
  for (size_t i = 0; i < chat.ids.size(); i++) {
    const std::string id = std::to_string(chat.ids[i]);
    const std::string shown = chat.learn[i] ? marked(id, terminal.colour) : id;
    const size_t columns = 1 + (terminal.colour ? id : shown).size();
    if (column + columns > width) {
      out += "\n   ";
      column = 3;
    }
    out += " " + shown;
    column += columns;
  }
  return out;
}

}  // namespace

std::string chat_as_text(const ChatTokens& chat, const Terminal& terminal) {
  const int64_t supervised = std::ranges::count(chat.learn, true);
  return concat(grouped(std::ssize(chat.ids)), chat.ids.size() == 1 ? " token, " : " tokens, ",
                grouped(supervised), " of them supervised", terminal.colour ? " (in colour)" : " (in [[ ]])",
                "\n\n", marked_text(chat, terminal.colour), "\n\n", marked_ids(chat, terminal), "\n");
}

}  // namespace trainer::cli
