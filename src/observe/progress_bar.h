// A line at the bottom of the terminal that is redrawn in place.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace trainer {

// "[=====>    ]  50 %  WHAT  DETAIL", cut to fewer than `width` columns: the bar shrinks first, then goes,
// then the detail.
std::string progress_line(const std::string& what, int64_t done, int64_t total, const std::string& detail,
                          int width);

// Log lines from any thread clear it first (log::set_before_line); the next draw brings it back.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // At most ten times a second, and always when done == total.
  void draw(const std::string& what, int64_t done, int64_t total, const std::string& detail);
  void clear();

 private:
  bool visible_ = false;
  std::chrono::steady_clock::time_point last_drawn_{};
};

}  // namespace trainer
