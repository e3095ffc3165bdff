// How the process that has started the ranks of a run ends with them. Small processes stand for ranks.
#include "cli/watch_ranks.h"

#include <csignal>
#include <functional>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/stop_signals.h"

namespace trainer::cli {
namespace {

constexpr double kLong = 600, kShort = 0.05;  // seconds

using Work = std::function<void()>;

void wait_for_signal() { ::pause(); }

// Ranks say here that they have begun.
struct Began {
  Began() { EXPECT_EQ(::pipe(ends), 0); }
  ~Began() {
    for (const int end : ends) ::close(end);
  }
  void say() const { EXPECT_EQ(::write(ends[1], "!", 1), 1); }
  void wait_for(int ranks) const {
    char said = 0;
    for (int i = 0; i < ranks; i++) EXPECT_EQ(::read(ends[0], &said, 1), 1);
  }
  int ends[2];
};

// Ends with this code at the first signal to stop.
Work stopping_with(int code, const Began& began) {
  return [code, &began] {
    const StopSignals signals;
    hold_stop_signals();
    began.say();
    while (stop_signal().empty()) ::poll(nullptr, 0, 10);
    ::_exit(code);
  };
}

Work ending_with(int code) {
  return [code] { ::_exit(code); };
}

Work killed_by(int number) {
  return [number] { ::raise(number); };
}

void start(RankWatch& watch, const Work& work) {
  const pid_t process = ::fork();
  if (process == 0) {
    ::alarm(120);
    work();
    ::_exit(0);
  }
  watch.add(process);
}

struct Outcome {
  int code = 0;
  std::string message;
};

Outcome outcome_of(RankWatch& watch) {
  try {
    watch.until_all_have_ended();
  } catch (const Error& error) {
    return {static_cast<int>(error.code()), error.what()};
  }
  return {};
}

Outcome outcome_of(const std::vector<Work>& ranks, double patience = kLong, double noticing = kLong) {
  RankWatch watch(patience, noticing);
  for (const Work& work : ranks) start(watch, work);
  return outcome_of(watch);
}

TEST(WatchRanks, EndsWellWithAll) { EXPECT_EQ(outcome_of({ending_with(0), ending_with(0)}).code, 0); }

TEST(WatchRanks, ARunThatHasSavedEndsWith75) {
  const Outcome outcome = outcome_of({ending_with(75), ending_with(75), ending_with(0)});
  EXPECT_EQ(outcome.code, 75);
  EXPECT_EQ(outcome.message, "");  // rank 0 has said it
}

TEST(WatchRanks, AFailureSaysMoreThanASave) {
  EXPECT_EQ(outcome_of({ending_with(75), ending_with(5)}).code, 5);
}

TEST(WatchRanks, ACodeWithoutAMeaningYieldsToThatOfRank0) {
  EXPECT_EQ(outcome_of({ending_with(4), ending_with(1)}).code, 4);
  EXPECT_EQ(outcome_of({ending_with(0), ending_with(1)}).code, 1);
}

TEST(WatchRanks, ARankThatWasKilledIsNamed) {
  const Outcome outcome = outcome_of({ending_with(0), killed_by(SIGKILL), ending_with(0)});
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_NE(outcome.message.find("rank 1 was killed by signal 9"), std::string::npos) << outcome.message;
  EXPECT_NE(outcome.message.find("out of memory"), std::string::npos) << outcome.message;
}

// The others end with an error because they have lost it.
TEST(WatchRanks, ThatARankWasKilledIsTheCauseOfTheOthersErrors) {
  EXPECT_EQ(outcome_of({ending_with(8), ending_with(8), killed_by(SIGSEGV)}).code, 128 + SIGSEGV);
}

TEST(WatchRanks, ThoseThatDoNotNoticeAFailureAreToldToStop) {
  const Began began;
  const Outcome outcome = outcome_of({stopping_with(75, began), ending_with(3)}, kLong, kShort);
  EXPECT_EQ(outcome.code, 3);
}

// As one that is asked to stop while they all start: the others wait for it.
TEST(WatchRanks, ARankThatWasStoppedStopsTheOthers) {
  const Began began;
  EXPECT_EQ(outcome_of({stopping_with(75, began), ending_with(75)}, kLong, kShort).code, 75);
}

TEST(WatchRanks, ThoseThatDoNotStopAreKilled) {
  const Work deaf = [] {
    ::signal(SIGTERM, SIG_IGN);
    for (;;) wait_for_signal();
  };
  EXPECT_EQ(outcome_of({deaf, ending_with(3)}, kShort, kShort).code, 3);
}

TEST(WatchRanks, SignalsGoToAllRanks) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    const Began began;
    RankWatch watch(kLong);
    for (int i = 0; i < 3; i++) start(watch, stopping_with(6, began));
    began.wait_for(3);
    ::kill(::getpid(), number);
    EXPECT_EQ(outcome_of(watch).code, 6) << number;
  }
}

// Signals that come while a rank starts wait until it handles them.
TEST(WatchRanks, ASignalToSaveReachesRank0) {
  const Work saves_once = [] {
    const StopSignals signals;
    hold_stop_signals();
    while (!take_save_request()) ::poll(nullptr, 0, 10);
  };
  const Work never_saves = [] {
    const StopSignals signals;
    hold_stop_signals();
    ::poll(nullptr, 0, 100);
    ::_exit(take_save_request() ? 1 : 0);
  };
  RankWatch watch(kLong);
  ::kill(::getpid(), SIGUSR1);
  for (const Work& work : {saves_once, never_saves, never_saves}) start(watch, work);
  EXPECT_EQ(outcome_of(watch).code, 0);
}

TEST(WatchRanks, ASecondInterruptEndsItAsAShellExpects) {
  EXPECT_EXIT(
      {
        const Began began;
        RankWatch watch(kLong);
        start(watch, [&] {
          const StopSignals signals;
          hold_stop_signals();
          began.say();
          for (bool told = false;;) {
            ::poll(nullptr, 0, 10);
            if (told || stop_signal().empty()) continue;
            told = true;
            ::kill(::getppid(), SIGINT);  // the second, once the first was seen
          }
        });
        began.wait_for(1);
        ::kill(::getpid(), SIGINT);
        watch.until_all_have_ended();
      },
      testing::KilledBySignal(SIGINT), "Stopped at once");
}

TEST(WatchRanks, NoRankStaysBehind) {
  pid_t process = 0;
  {
    RankWatch watch(kLong);
    start(watch, wait_for_signal);
    process = watch.group();
  }
  EXPECT_EQ(::kill(process, 0), -1);
}

}  // namespace
}  // namespace trainer::cli
