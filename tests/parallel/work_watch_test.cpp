#include "parallel/work_watch.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "base/purposeful_wait.h"

namespace trainer {
namespace {

using std::chrono::steady_clock;

// Looks again and again until the process has been idle for a moment; false: it never was.
bool becomes_idle(WorkWatch& watch) {
  for (const auto until = steady_clock::now() + std::chrono::seconds(20); steady_clock::now() < until;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (watch.idle_seconds() > 0.1) return true;
  }
  return false;
}

TEST(WorkWatch, AProcessWhoseThreadWaitsIsIdleUntilItWorks) {
  WorkWatch watch;
  EXPECT_EQ(watch.idle_seconds(), 0) << "nothing is asked of it yet";
  enum Phase : int { begins, waits, works, ends };
  std::atomic<int> phase{begins};
  const auto go_to = [&](Phase next) {
    phase = next;
    phase.notify_all();
  };
  std::jthread worker([&] {
    watch.begin();  // all other threads are none of the work
    go_to(waits);
    phase.wait(waits);
    while (phase == works) {
    }
  });
  phase.wait(begins);
  EXPECT_TRUE(becomes_idle(watch));
  {
    const PurposefulWait waits_for_others;
    EXPECT_EQ(watch.idle_seconds(), 0);
  }
  EXPECT_TRUE(becomes_idle(watch));
  go_to(works);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the time of which some is computed
  EXPECT_EQ(watch.idle_seconds(), 0);
  go_to(ends);
  worker.join();
  watch.end();
  EXPECT_EQ(watch.idle_seconds(), 0);
}

}  // namespace
}  // namespace trainer
