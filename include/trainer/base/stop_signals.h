// Signals that ask a run to stop or to save (docs/reliability.md).
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace trainer {

// While it lives the process answers SIGTERM, SIGINT, SIGHUP (stop) and SIGUSR1 (save) as described below;
// afterwards they do what they did before. A signal to stop that the process ignores stays ignored (nohup, a
// shell's background jobs). In one thread, and one at a time.
//
// A signal to stop is told on stderr at once. While there is nothing to lose it ends the process with
// ExitCode::interrupted. From hold_stop_signals() on it is noted, and the run ends when it sees that. A
// second SIGINT ends the process at once, by that signal (a shell says 130).
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

// From here on there is something to lose.
void hold_stop_signals();

// "SIGTERM" when that asked to stop since the signals are held; "" when none did.
std::string stop_signal();

// Whether SIGUSR1 came since the last call.
bool take_save_request();

}  // namespace trainer
