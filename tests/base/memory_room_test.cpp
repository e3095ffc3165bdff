// Room for threads under a limit of memory, in processes of their own.
#include "base/memory_room.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "support/error_message.h"

namespace trainer {
namespace {

// Lets the address space grow by so many bytes and no further.
void leave_room(int64_t bytes) {
  std::ifstream in("/proc/self/statm");
  int64_t pages = 0;
  in >> pages;
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + bytes);
  ::setrlimit(RLIMIT_AS, &limit);
}

constexpr int64_t kMB = 1 << 20;

TEST(MemoryRoom, IsUnlimitedWithoutALimit) {
  if (has_memory_limit()) GTEST_SKIP() << "this process has a limit";
  EXPECT_TRUE(is_room_for_threads(1'000'000));
  EXPECT_NO_THROW(require_room_for_threads(1'000'000, "everything"));
}

TEST(MemoryRoom, IsAskedForUnderALimit) {
  const auto answer = [] {
    leave_room(200 * kMB);
    const bool right = has_memory_limit() && is_room_for_threads(1) && !is_room_for_threads(1000);
    std::_Exit(right ? 0 : 1);
  };
  EXPECT_EXIT(answer(), testing::ExitedWithCode(0), "");
}

TEST(MemoryRoom, WhoNeedsMoreIsToldSo) {
  const auto message = [] {
    leave_room(20 * kMB);
    const std::string said =
        test::error_message<OutOfMemoryError>([] { require_room_for_threads(13, "the connections"); });
    std::_Exit(test::contains(said, "no room for the 13 threads of the connections") &&
                       test::contains(said, "ulimit -v")
                   ? 0
                   : 1);
  };
  EXPECT_EXIT(message(), testing::ExitedWithCode(0), "");
}

TEST(MemoryRoom, AnAbortOfTheCLibraryUnderALimitEndsWithWordsAndItsCode) {
  const auto abort_under_limit = [] {
    leave_room(200 * kMB);
    prepare_for_memory_limit();
    std::abort();
  };
  EXPECT_EXIT(abort_under_limit(), testing::ExitedWithCode(5), "out of memory on the host.*oom-host");
}

}  // namespace
}  // namespace trainer
