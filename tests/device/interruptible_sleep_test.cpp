#include <atomic>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>

#include "device/gpu_wait.h"

namespace trainer {
namespace {

// Once a sleeper is there a signal reaches it; before, the test's own handler takes it.
std::atomic<int> outside = 0;

TEST(InterruptibleSleep, ASignalToAnyThreadEndsItAndNothingElse) {
  struct sigaction count {};
  count.sa_handler = [](int) { outside++; };
  struct sigaction before {};
  sigaction(SIGTERM, &count, &before);
  std::atomic<bool> over = false;
  bool slept = true;
  std::thread sleeper([&] {
    slept = interruptible_sleep(600);
    over = true;
  });
  while (!over) {
    kill(getpid(), SIGTERM);
    std::this_thread::yield();
  }
  sleeper.join();
  EXPECT_FALSE(slept);
  const int seen = outside;
  raise(SIGTERM);  // the handler of before is there again
  EXPECT_EQ(outside, seen + 1);
  sigaction(SIGTERM, &before, nullptr);
}

TEST(InterruptibleSleep, WithoutASignalItEndsByItself) {
  while (!interruptible_sleep(0)) {
  }  // what the test before may have left
  EXPECT_TRUE(interruptible_sleep(0.001));
}

}  // namespace
}  // namespace trainer
