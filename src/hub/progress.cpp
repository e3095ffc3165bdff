#include "hub/progress.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sys/ioctl.h>
#include <unistd.h>

#include "trainer/base/log.h"
#include "trainer/base/seconds_since.h"
#include "trainer/base/strings.h"

namespace trainer::hub {
namespace {

using namespace std::chrono_literals;

// Columns of the terminal of stderr; 0 if it is none.
size_t terminal_width() {
  winsize size{};
  if (::isatty(STDERR_FILENO) != 1 || ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col == 0 ? 80 : std::max<size_t>(size.ws_col, 20);
}

void rewrite_line(const std::string& text) { std::fprintf(stderr, "\r\033[K%s", text.c_str()); }

}  // namespace

Progress::Progress(std::string what, int64_t total) : what_(std::move(what)), total_(total) {
  thread_ = std::jthread([this](const std::stop_token& stop) { show_now_and_then(stop); });
}

Progress::~Progress() {
  thread_.request_stop();
  thread_.join();
}

std::string Progress::line(double seconds) const {
  const int64_t done = done_, fetched = done - present_;
  const double rate = static_cast<double>(fetched) / seconds;
  std::string text = bytes_string(done);
  if (total_ > 0) text += concat(" of ", bytes_string(total_));
  text += concat(", ", bytes_string(static_cast<int64_t>(rate)), "/s");
  if (total_ > done && rate > 0)
    text += concat(", ", duration_string(static_cast<double>(total_ - done) / rate), " left");
  return text;
}

void Progress::show_now_and_then(std::stop_token stop) {
  const auto start = std::chrono::steady_clock::now();
  const bool live = terminal_width() > 0 && log::is_shown(log::Level::info);
  auto next = start + (live ? 1s : 5s);
  bool shown = false;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_until(lock, stop, next, [&] { return stop.stop_requested(); })) {
    const std::string text = line(seconds_since(start));
    live ? rewrite_line(one_line(text + "  " + what_, terminal_width() - 1))
         : log::info(concat(what_, ": ", text));
    shown = live;
    next = std::chrono::steady_clock::now() + (live ? 1s : 5s);
  }
  if (shown) rewrite_line("");
}

}  // namespace trainer::hub
