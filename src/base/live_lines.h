// The lines at the bottom of stderr's terminal that change in place. Everything else that is written to
// stderr goes above them. Thread safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// Replaces the lines; {}: none. Each is cut at the width of the terminal, so that it takes one row. Draws
// nothing where stderr is no terminal, while the process is in the background, and while LiveLinesHidden
// exists.
void show_live_lines(const std::vector<std::string>& lines);

// Writes text to stderr, above the live lines. It must end in a line break.
void write_above_live_lines(std::string_view text);

// Removes the lines. May be called in a signal handler, before it writes to stderr.
void erase_live_lines_in_handler() noexcept;

// While it exists there are no live lines: for what writes to the same terminal by stdout.
class LiveLinesHidden {
 public:
  LiveLinesHidden();
  ~LiveLinesHidden();
  LiveLinesHidden(const LiveLinesHidden&) = delete;
  LiveLinesHidden& operator=(const LiveLinesHidden&) = delete;
};

}  // namespace trainer
