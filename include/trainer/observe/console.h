// What a person sees of a run on stderr: the start block, one line per logging interval and evaluation, and
// on a terminal a progress bar below them. Lines go through log::info, so that --quiet leaves them out and
// log.txt has them.
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

// Progress bar where stderr is a terminal.
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

  // A row of kind train moves the bar and, every logging_steps steps and at the last step, gives a line: loss
  // is the mean over the interval's steps, rates are its tokens and samples by its step_seconds, the peak is
  // the interval's. Kind eval gives a line, other kinds none. A key that a row lacks is left
  // out of its line.
  void write(const MetricRow& row) override;

  // Moves the bar by hand, for work that writes no rows. No effect where there is no bar.
  void progress(const std::string& what, int64_t done, int64_t total);

  // Shows the steps since the last line, if any, and takes the bar away.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainer
