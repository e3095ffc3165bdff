#include "observe/progress_bar.h"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <sys/ioctl.h>
#include <unistd.h>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

constexpr int kMinimalBar = 10, kMaximalBar = 40;
constexpr auto kInterval = std::chrono::milliseconds(100);

// The bar of the terminal: log's callback takes no argument.
std::mutex bar_mutex;
ProgressBar* shown_bar = nullptr;

void clear_shown_bar() {
  if (shown_bar != nullptr) shown_bar->clear();
}

int terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string progress_line(const std::string& what, int64_t done, int64_t total, const std::string& detail,
                          int width) {
  const double part =
      total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 0;
  char percent[16];
  std::snprintf(percent, sizeof percent, "%3d %%", static_cast<int>(part * 100));
  const std::string head = concat(percent, "  ", what);
  const std::string text = detail.empty() ? head : concat(head, "  ", detail);
  const int room = width - 1 - static_cast<int>(text.size()) - 4;  // "[" "]" and two blanks
  if (room >= kMinimalBar) {
    const int bar = std::min(room, kMaximalBar), filled = static_cast<int>(part * bar);
    std::string inside(static_cast<size_t>(bar), ' ');
    std::fill_n(inside.begin(), filled, '=');
    if (filled < bar) inside[static_cast<size_t>(filled)] = '>';
    return concat("[", inside, "]  ", text);
  }
  const size_t columns = static_cast<size_t>(std::max(width - 1, 0));
  return (text.size() <= columns ? text : head).substr(0, columns);
}

ProgressBar::ProgressBar() {
  const std::lock_guard lock(bar_mutex);
  shown_bar = this;
  log::set_before_line(clear_shown_bar);
}

ProgressBar::~ProgressBar() {
  clear();
  const std::lock_guard lock(bar_mutex);
  shown_bar = nullptr;
  log::set_before_line(nullptr);
}

void ProgressBar::draw(const std::string& what, int64_t done, int64_t total, const std::string& detail) {
  const std::lock_guard lock(bar_mutex);
  const auto now = std::chrono::steady_clock::now();
  if (visible_ && done < total && now - last_drawn_ < kInterval) return;
  last_drawn_ = now;
  visible_ = true;
  // \x1b[K: clear to the end of the line.
  std::fprintf(stderr, "\r%s\x1b[K", progress_line(what, done, total, detail, terminal_width()).c_str());
  std::fflush(stderr);
}

void ProgressBar::clear() {
  const std::lock_guard lock(bar_mutex);
  if (!visible_) return;
  visible_ = false;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

}  // namespace trainer
