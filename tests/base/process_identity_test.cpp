#include "base/process_identity.h"

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace trainer {
namespace {

TEST(ProcessIdentity, ThisProcessLives) { EXPECT_EQ(life_of(own_identity()), Life::alive); }

TEST(ProcessIdentity, AProcessThatEndedIsDead) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ProcessIdentity gone = own_identity();
  gone.pid = child;
  gone.start = 0;
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(life_of(gone), Life::dead);
}

TEST(ProcessIdentity, ANumberThatAnotherProcessHasNowIsDead) {
  ProcessIdentity process = own_identity();
  ASSERT_GT(process.start, 0);
  process.start--;
  EXPECT_EQ(life_of(process), Life::dead);
}

TEST(ProcessIdentity, AMachineThatWasStartedAgainHasNoOldProcess) {
  ProcessIdentity process = own_identity();
  process.boot = "another";
  EXPECT_EQ(life_of(process), Life::dead);
}

TEST(ProcessIdentity, NothingIsKnownOfOtherMachinesAndContainers) {
  ProcessIdentity process = own_identity();
  process.host += "-2";
  EXPECT_EQ(life_of(process), Life::elsewhere);
  process = own_identity();
  process.pid_namespace = "pid:[1]";
  EXPECT_EQ(life_of(process), Life::elsewhere);
}

}  // namespace
}  // namespace trainer
