// Threads when the system gives fewer than were asked for.
#include "base/threads.h"

#include <atomic>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "support/error_message.h"
#include "support/no_threads.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;

TEST(StartThreads, EachGetsANumberOfItsOwn) {
  std::array<std::atomic<int>, 5> calls{};
  {
    std::vector<std::jthread> threads;
    EXPECT_EQ(start_threads(threads, 5, [&](int64_t i) { calls[static_cast<size_t>(i)]++; }), 5);
  }
  for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
}

TEST(StartThreads, WhereTheSystemGivesNoneItSaysSo) {
  EXPECT_EXIT(
      {
        test::give_no_threads();
        std::vector<std::jthread> threads;
        if (start_threads(threads, 3, [](int64_t) {}) != 0) ::_exit(1);
        const std::string message =
            error_message<ConfigError>([] { require_threads(3, "training.num_threads"); });
        ::_exit(contains(message, "training.num_threads: the system gives 0 of the 3 threads") &&
                        contains(message, "ulimit -u")
                    ? 0
                    : 2);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace trainer
