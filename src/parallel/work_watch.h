// Whether this process does anything while it loads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>

namespace trainer {

// How long loading takes nobody knows, so there is no deadline for it. But a process that loads computes or
// reads; one that does neither hangs: on a file system that is gone, or on a lock.
class WorkWatch {
 public:
  // Of the threads that exist now, only the calling one works for the run; the others keep its connections.
  void begin();
  // From now on the process counts as busy.
  void end() { watches_ = false; }

  // Returns for how many seconds the process has done nothing and waited for nobody. One thread calls it
  // again and again. The time in which the process itself was stopped, as by Ctrl-Z, does not count.
  double idle_seconds();

 private:
  // What its threads have computed and read so far; nothing where the system does not say.
  struct Done {
    int64_t nanoseconds = 0, reads = 0;
  };
  std::optional<Done> done() const;

  std::atomic<bool> watches_{false};
  std::set<int64_t> others_;  // threads
  Done last_;
  double idle_ = 0;
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace trainer
