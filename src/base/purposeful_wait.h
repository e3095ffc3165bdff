// Waiting that takes as long as it takes.
#pragma once

#include <atomic>

namespace trainer {

// While one exists, this process waits on purpose: for a GPU that others use, or for the other ranks. That it
// does nothing is then no sign that it hangs (parallel/work_watch.h).
class PurposefulWait {
 public:
  PurposefulWait() { ++count(); }
  ~PurposefulWait() { --count(); }
  PurposefulWait(const PurposefulWait&) = delete;
  PurposefulWait& operator=(const PurposefulWait&) = delete;

  static bool any() { return count() > 0; }

 private:
  static std::atomic<int>& count() {
    static std::atomic<int> waits{0};
    return waits;
  }
};

}  // namespace trainer
