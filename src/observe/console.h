// The output of a run on stderr: the start block, one line per logging interval and evaluation, and on a
// terminal a block of lines below them that changes in place. Lines go through log::info, so that --quiet
// hides them and log.txt has them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/base/metrics.h"

#include "base/progress.h"
#include "observe/time_left.h"

namespace trainer {

// Names and values, shown in two columns.
struct StartBlock {
  std::vector<std::pair<std::string, std::string>> lines;
};

struct ConsoleOptions {
  int64_t logging_steps = 10;  // optimizer steps per line
};

class Console : public MetricSink, public LiveView {
 public:
  explicit Console(const ConsoleOptions& options);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console() override;

  // Shows the start block, and from here on the live one. At most one console can do that at a time.
  void start(const StartBlock& block, const RunOutlook& outlook);

  // A row of kind train changes the live block. Every logging_steps steps, and at the last step, it also
  // gives a line: the loss is the mean over the steps of the interval, rates are tokens and samples of the
  // interval divided by its step_seconds, the peak is that of the interval. A terminal that is too narrow for
  // it gets a part of the line. A row of kind eval gives a line, other kinds give none. Keys that a row does
  // not have are left out of its line.
  void write(const MetricRow& row) override;

  // The live block: how far the run is and how long it will take, loss and speed, memory, the last evaluation
  // and save. A part for which nothing is known yet is left out.
  std::vector<std::string> live_lines(size_t width) override;

  // Shows the steps since the last line, if any, and removes the live block.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainer
