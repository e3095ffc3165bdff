#include "base/line_reader.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <termios.h>
#include <unistd.h>

#include "base/terminal.h"
#include "base/text.h"

namespace trainer {
namespace {

termios cooked_settings;

// A signal that ends the program must not leave a terminal behind that shows nothing of what is typed.
void restore_and_end(int number) {
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked_settings);
  std::signal(number, SIG_DFL);
  ::raise(number);
}

// Keys come one by one and are not shown by the terminal itself. What was typed before is kept.
class RawMode {
 public:
  RawMode() {
    ::tcgetattr(STDIN_FILENO, &cooked_settings);
    enter();
    for (size_t i = 0; i < std::size(kEnding); i++) {
      struct sigaction action {};
      action.sa_handler = restore_and_end;
      action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
      ::sigaction(kEnding[i], &action, &before_[i]);
    }
  }
  ~RawMode() {
    leave();
    for (size_t i = 0; i < std::size(kEnding); i++) ::sigaction(kEnding[i], &before_[i], nullptr);
  }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;

  void suspend() const {
    leave();
    ::raise(SIGTSTP);
    enter();
  }

 private:
  static void enter() {
    termios raw = cooked_settings;
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IXON);
    raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    std::cout << "\x1b[?2004h" << std::flush;  // pasted text comes marked
  }
  static void leave() {
    std::cout << "\x1b[?2004l" << std::flush;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked_settings);
  }

  static constexpr int kEnding[] = {SIGTERM, SIGHUP, SIGINT};
  struct sigaction before_[std::size(kEnding)]{};
};

bool read_byte(char& byte) {
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got == 1) return true;
    if (got == 0 || errno != EINTR) return false;
  }
}

size_t terminal_width() {
  const size_t width = stdout_terminal().value_or(Terminal{}).width;
  return width == 0 ? 80 : width;
}

}  // namespace

bool LineReader::is_possible() {
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1) return false;
  const char* terminal = std::getenv("TERM");
  return terminal == nullptr || std::string_view(terminal) != "dumb";
}

void LineReader::show(const std::string& prompt) {
  const size_t columns = count_characters(prompt);
  EditedLine::View view = edited_.view(std::max<size_t>(terminal_width(), columns + 8) - columns);
  if (view.at_end && shown_.at_end && view.text.starts_with(shown_.text)) {  // the usual case: no flicker
    std::cout << view.text.substr(shown_.text.size()) << std::flush;
  } else {
    std::cout << '\r' << prompt << view.text << "\x1b[K\r";
    if (columns + view.cursor > 0) std::cout << "\x1b[" << columns + view.cursor << 'C';
    std::cout << std::flush;
  }
  shown_ = std::move(view);
}

LineReader::Ending LineReader::read(const std::string& prompt, std::string& line) {
  const RawMode raw;
  edited_.clear();
  shown_ = edited_.view(80);
  std::cout << prompt << std::flush;
  const auto end = [&](Ending ending) {
    line = ending == Ending::line ? edited_.take() : edited_.text();
    std::cout << '\n' << std::flush;
    return ending;
  };
  for (char byte = 0; read_byte(byte);) {
    const std::optional<Pressed> pressed = keys_.add(byte);
    if (!pressed) continue;
    switch (pressed->key) {
      case Key::enter:
        return end(Ending::line);
      case Key::interrupt:
        return end(Ending::interrupted);
      case Key::end_of_input:
        if (edited_.text().empty()) return end(Ending::ended);
        edited_.press({Key::erase});
        break;
      case Key::suspend:
        raw.suspend();
        shown_.at_end = false;  // the screen is another one: show the whole line
        break;
      case Key::clear_screen:
        std::cout << "\x1b[H\x1b[2J";
        shown_.at_end = false;
        break;
      default:
        edited_.press(*pressed);
    }
    show(prompt);
  }
  return end(Ending::ended);
}

}  // namespace trainer
