#include "trainer/base/stop_signals.h"

#include <csignal>
#include <cstdlib>

#include <gtest/gtest.h>

#include "trainer/base/log.h"
#include "trainer/base/rank_place.h"

namespace trainer {
namespace {

using testing::ExitedWithCode;
using testing::KilledBySignal;

TEST(StopSignals, WithNothingToLoseEndTheProcessWithCode75) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    EXPECT_EXIT(
        {
          const StopSignals signals;
          std::raise(number);
          std::_Exit(0);
        },
        ExitedWithCode(75), "before a step was made; the same command starts again");
  }
}

TEST(StopSignals, ThatAreHeldAreToldAtOnceAndNoted) {
  EXPECT_EXIT(
      {
        const StopSignals signals;
        hold_stop_signals();
        if (!stop_signal().empty()) std::_Exit(1);
        std::raise(SIGTERM);
        std::raise(SIGHUP);
        std::raise(SIGINT);
        std::_Exit(stop_signal() == "SIGTERM" ? 0 : 2);
      },
      ExitedWithCode(0), "^\ntrainer: SIGTERM: stopping after this step\n$");
}

TEST(StopSignals, AreForgottenWithTheRunThatTheyStopped) {
  EXPECT_EXIT(
      {
        {
          const StopSignals signals;
          hold_stop_signals();
          std::raise(SIGTERM);
          std::raise(SIGUSR1);
        }
        std::_Exit(stop_signal().empty() && !take_save_request() ? 0 : 1);
      },
      ExitedWithCode(0), "SIGTERM");
}

TEST(StopSignals, ASecondInterruptEndsTheProcessByThatSignal) {
  EXPECT_EXIT(
      {
        const StopSignals signals;
        hold_stop_signals();
        std::raise(SIGINT);
        std::raise(SIGINT);
        std::_Exit(0);
      },
      KilledBySignal(SIGINT), "Stopped at once");
}

// A signal to all processes of a job comes from outside and, once more, from the launcher.
TEST(StopSignals, OfARankCountOnlyFromItsLauncher) {
  EXPECT_EXIT(
      {
        ::setenv(kLauncherVariable, "trainer", 1);
        const StopSignals signals;
        hold_stop_signals();
        for (int i = 0; i < 3; i++) std::raise(SIGINT);
        std::_Exit(stop_signal() == "SIGINT" ? 0 : 1);
      },
      ExitedWithCode(0), "");
}

TEST(StopSignals, AreToldByRank0Alone) {
  EXPECT_EXIT(
      {
        log::speak_as_rank(2);
        const StopSignals signals;
        hold_stop_signals();
        std::raise(SIGTERM);
        log::info("not shown");
        log::warning("shown");
        std::_Exit(stop_signal() == "SIGTERM" ? 0 : 1);
      },
      ExitedWithCode(0), "^[0-9:]+ W rank 2: shown\n$");
}

TEST(StopSignals, ThatTheProcessIgnoresStayIgnored) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        const StopSignals signals;
        std::raise(SIGHUP);
        std::_Exit(3);
      },
      ExitedWithCode(3), "^$");
}

TEST(StopSignals, ARequestToSaveIsThereOnce) {
  const StopSignals signals;
  EXPECT_FALSE(take_save_request());
  std::raise(SIGUSR1);
  std::raise(SIGUSR1);
  EXPECT_TRUE(take_save_request());
  EXPECT_FALSE(take_save_request());
  EXPECT_EQ(stop_signal(), "");
}

TEST(StopSignals, AfterwardsSignalsDoWhatTheyDidBefore) {
  EXPECT_EXIT(
      {
        {
          const StopSignals signals;
          hold_stop_signals();
        }
        std::raise(SIGTERM);
        std::_Exit(0);
      },
      KilledBySignal(SIGTERM), "^$");
}

}  // namespace
}  // namespace trainer
