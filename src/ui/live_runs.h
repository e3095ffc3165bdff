// What the page shows of the runs that it has open, read further as they go on.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "report/report.h"
#include "ui/run_index.h"

namespace trainer::ui {

class LiveRuns {
 public:
  explicit LiveRuns(RunIndex& index) : index_(index) {}

  // Returns a text that changes when something changes that run() returns.
  std::string stamp(const KnownRun& run);

  // Returns what the page of `trainer report` has of the run (read_run()), and "id", "name", "status" and
  // whether it can be stopped from here. Throws FormatError when it cannot be read.
  nlohmann::ordered_json run(const KnownRun& run);

 private:
  struct Open {
    std::string id;
    std::shared_ptr<RunReader> reader;
    std::shared_ptr<std::mutex> reads;  // one at a time
  };
  Open open(const KnownRun& run);

  RunIndex& index_;
  std::mutex mutex_;
  std::list<Open> open_;  // the last one that was asked for first
};

// Returns {"from", "to", "text", "skipped"} of OUT/log.txt: whole lines from the byte `from` on, or the last
// ones if that is negative, or beyond the end as after another start; at most 256 kB. Empty when there is no
// log.
nlohmann::ordered_json read_log(const std::filesystem::path& run, int64_t from);

// Asks the process of a run to save and stop, as Ctrl-C in its terminal does. Returns "", or why not: it does
// not run, or not on this machine, or belongs to another user, or is no process of this program.
std::string stop_run(const RunStatus& status);

}  // namespace trainer::ui
