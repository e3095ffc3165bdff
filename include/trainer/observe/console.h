// What a run shows on stderr: the start block, one line per logging interval and evaluation, and on a
// terminal a progress bar below them. Lines go through log::info, so that --quiet hides them and log.txt has
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/base/metrics.h"

namespace trainer {

// Names and values, shown in two columns.
struct StartBlock {
  std::vector<std::pair<std::string, std::string>> lines;
};

struct ConsoleOptions {
  int64_t logging_steps = 10;  // optimizer steps per line
  bool progress_bar = false;   // stderr is a terminal
};

// Returns options with a progress bar if stderr is a terminal.
ConsoleOptions console_options(int64_t logging_steps);

// At most one console with a progress bar can live at a time.
class Console : public MetricSink {
 public:
  explicit Console(const ConsoleOptions& options);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console() override;

  // Shows the block and remembers where the run will end.
  void start(const StartBlock& block, int64_t total_steps);

  // A row of kind train moves the bar. Every logging_steps steps, and at the last step, it also gives a line:
  // the loss is the mean over the steps of the interval, rates are tokens and samples of the interval divided
  // by its step_seconds, the peak is that of the interval. A row of kind eval gives a line, other kinds give
  // none. Keys that a row does not have are left out of its line.
  void write(const MetricRow& row) override;

  // Moves the bar directly, for work that writes no rows. Does nothing without a bar.
  void progress(const std::string& what, int64_t done, int64_t total);

  // Shows the steps since the last line, if any, and removes the bar.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainer
