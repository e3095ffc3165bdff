// Signals that ask a run to stop or to save (docs/reliability.md).
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace trainer {

// While this object exists, the process handles SIGTERM, SIGINT, SIGHUP (stop) and SIGUSR1 (save) as
// described below. The destructor restores the previous handlers. A stop signal that the process ignores
// stays ignored (nohup, background jobs of a shell). Use it in one thread, and only one at a time.
//
// A stop signal is reported on stderr at once. Before hold_stop_signals() there is nothing to save, and the
// signal ends the process with ExitCode::interrupted. After it the signal is only recorded, and the run stops
// when it checks stop_signal(). A second SIGINT ends the process at once, by that signal (a shell reports
// 130).
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  struct Before {
    int number;
    struct sigaction action;
  };
  std::vector<Before> before_;
};

// Call this when the run has something to save.
void hold_stop_signals();

// Returns the name of the stop signal that arrived since hold_stop_signals(), such as "SIGTERM"; "" when none
// did.
std::string stop_signal();

// Returns whether SIGUSR1 arrived since the last call.
bool take_save_request();

}  // namespace trainer
