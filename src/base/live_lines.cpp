#include "base/live_lines.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>
#include <unistd.h>

#include "trainer/base/rank_place.h"
#include "trainer/base/strings.h"

#include "base/terminal.h"
#include "base/text.h"

namespace trainer {
namespace {

// Never destroyed: threads may still write while the process ends.
struct Screen {
  std::mutex mutex;
  std::vector<std::string> lines;  // as drawn
  size_t width = 0;                // when they were drawn
  int hidden = 0;
};

Screen& screen() {
  static Screen* const instance = new Screen;
  return *instance;
}

// Rows that the drawn lines take, all above the cursor, which is at the beginning of the next row. A process
// that dies leaves it there. Also read by signal handlers.
std::atomic<int> drawn_rows{0};
static_assert(std::atomic<int>::is_always_lock_free);

void write_out(std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = ::write(STDERR_FILENO, text.data(), text.size());
    if (size < 0 && errno != EINTR) return;  // nobody listens
    if (size > 0) text.remove_prefix(static_cast<size_t>(size));
  }
}

// Most terminals wrap what they show anew when they become narrower; those that do not are known.
bool terminal_rewraps() {
  const char* kind = std::getenv("TERM");
  const bool in_tmux = std::getenv("TMUX") != nullptr;
  if (in_tmux) return true;
  const bool is_screen = kind != nullptr && std::strncmp(kind, "screen", 6) == 0;
  const bool is_console = kind != nullptr && std::strcmp(kind, "linux") == 0;
  return std::getenv("XTERM_VERSION") == nullptr && !is_screen && !is_console;
}

// Returns the escape codes that move the cursor to the first drawn row and clear from there on.
std::string erasure(const Screen& screen, size_t width) {
  int rows = drawn_rows.exchange(0);
  if (rows == 0) return "";
  if (width > 0 && width < screen.width && terminal_rewraps()) {
    size_t wrapped = 0;
    for (const std::string& line : screen.lines)
      wrapped += std::max<size_t>(1, (count_characters(line) + width - 1) / width);
    rows = static_cast<int>(wrapped);
  }
  return concat("\x1b[", rows, "A\r\x1b[J");
}

// A rank that our own launcher has started is where the launcher is.
bool is_in_foreground() {
  const pid_t group = ::tcgetpgrp(STDERR_FILENO);
  if (group < 0 || group == ::getpgrp()) return true;
  return is_started_by_trainer() && group == ::getpgid(::getppid());
}

// Returns what draws the lines; they must not be drawn already.
std::string drawing(Screen& screen, const Terminal& terminal) {
  if (screen.lines.empty() || screen.hidden > 0) return "";
  std::string text;
  for (const std::string& line : screen.lines) text += line + "\n";
  screen.width = terminal.width;
  drawn_rows = static_cast<int>(screen.lines.size());
  return text;
}

// After `kill -STOP`, Ctrl-Z and the like the shell has written below the lines: new ones are drawn below
// that.
void forget_rows(int) { drawn_rows = 0; }

void watch_continuation() {
  static const bool once = [] {
    struct sigaction before {};
    if (::sigaction(SIGCONT, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return false;
    struct sigaction ours {};
    ours.sa_handler = forget_rows;
    ours.sa_flags = SA_RESTART;
    return ::sigaction(SIGCONT, &ours, nullptr) == 0;
  }();
  static_cast<void>(once);
}

}  // namespace

void show_live_lines(const std::vector<std::string>& lines) {
  std::optional<Terminal> terminal = stderr_terminal();
  Screen& own = screen();
  const std::lock_guard lock(own.mutex);
  if (!terminal) return;
  if (terminal->width == 0) terminal->width = 80;
  const bool draws = is_in_foreground();
  std::vector<std::string> fitting;
  if (draws) {
    const size_t most = terminal->height > 1 ? terminal->height - 1 : lines.size();
    // The last ones say what is done now.
    const size_t left_out = lines.size() - std::min(lines.size(), most);
    for (size_t i = left_out; i < lines.size(); i++)
      fitting.push_back(fitted_line({{lines[i]}}, terminal->width - 1));
  }
  const bool is_shown = drawn_rows > 0 || own.hidden > 0;
  if (fitting == own.lines && terminal->width == own.width && is_shown == !fitting.empty()) return;
  if (!fitting.empty()) watch_continuation();
  std::string text = draws ? erasure(own, terminal->width) : "";
  drawn_rows = 0;
  own.lines = std::move(fitting);
  text += drawing(own, *terminal);
  write_out(text);
}

void write_above_live_lines(std::string_view text) {
  Screen& own = screen();
  const std::lock_guard lock(own.mutex);
  if (own.lines.empty()) return write_out(text);
  const Terminal terminal = stderr_terminal().value_or(Terminal{});
  const size_t width = terminal.width == 0 ? 80 : terminal.width;
  std::string all = erasure(own, width);
  all += text;
  // Lines of another width would wrap; they are drawn soon.
  if (width == own.width) all += drawing(own, {terminal.colour, width, terminal.height});
  write_out(all);
}

void erase_live_lines_in_handler() noexcept {
  const int rows = drawn_rows.exchange(0);
  if (rows <= 0) return;
  char text[32] = "\x1b[";
  char* end = std::to_chars(text + 2, std::end(text) - 8, rows).ptr;
  for (const char letter : std::string_view("A\r\x1b[J")) *end++ = letter;
  if (::write(STDERR_FILENO, text, static_cast<size_t>(end - text)) < 0) return;  // nobody listens
}

LiveLinesHidden::LiveLinesHidden() {
  Screen& own = screen();
  const std::lock_guard lock(own.mutex);
  own.hidden++;
  if (drawn_rows > 0) write_out(erasure(own, stderr_terminal().value_or(Terminal{}).width));
}

LiveLinesHidden::~LiveLinesHidden() {
  Screen& own = screen();
  const std::lock_guard lock(own.mutex);
  own.hidden--;
}

}  // namespace trainer
