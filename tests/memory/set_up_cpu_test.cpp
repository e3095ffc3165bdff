// Threads for computing when the system gives none.
#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/memory/device_memory.h"

#include "support/error_message.h"
#include "support/no_threads.h"

namespace trainer {
namespace {

TEST(SetUpCpu, SaysThatThereAreTooFewThreads) {
  EXPECT_EXIT(
      {
        test::give_no_threads();
        ::alarm(20);  // it must not wait for threads that never start
        const std::string message = test::error_message<ConfigError>([] { set_up_cpu(3); });
        ::_exit(test::contains(message, "training.num_threads: the system gives 0 of the 2 threads") ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace trainer
