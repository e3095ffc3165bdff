// The user's command, run for real.
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trainer/base/files.h"

#include "base/progress.h"
#include "notify/deliveries.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;
using Outcome = Delivery::Outcome;
using Json = nlohmann::ordered_json;

class Command : public ::testing::Test {
 protected:
  Delivery run(const std::string& command, double seconds = 30) {
    const std::atomic<bool> abort = false;
    const Event event{"failed",
                      "first line\nsecond line",
                      {"a log line"},
                      Json{{"event", "failed"}, {"run", "my run"}, {"step", 3}, {"exit_code", 5}}};
    return command_delivery(command, seconds)(event, 1, abort);
  }
  std::string file(const std::string& name) const { return (directory_ / name).string(); }
  std::string written() const { return read_file(directory_ / "out"); }

  test::TemporaryDirectory directory_;
};

TEST_F(Command, GetsTheEventAsJsonOnItsInput) {
  EXPECT_EQ(run("cat > " + file("out")).outcome, Outcome::sent);
  const Json event = Json::parse(written());
  EXPECT_EQ(event["event"], "failed");
  EXPECT_EQ(event["text"], "first line\nsecond line");
  EXPECT_EQ(event["lines"], Json{"a log line"});
  EXPECT_EQ(event["left_out"], 1);
}

TEST_F(Command, GetsTheEventInItsEnvironment) {
  EXPECT_EQ(run("echo \"$TRAINER_EVENT|$TRAINER_RUN|$TRAINER_STEP|$TRAINER_EXIT_CODE|$TRAINER_TEXT|"
                "${TRAINER_TOTAL_STEPS-unset}|${PATH:+path}\" > " +
                file("out"))
                .outcome,
            Outcome::sent);
  EXPECT_EQ(written(), "failed|my run|3|5|first line\nsecond line|unset|path\n");
}

TEST_F(Command, InheritsNoFileOfTheRun) {
  const int open_file = ::open(file("of_the_run").c_str(), O_RDWR | O_CREAT, 0600);  // no O_CLOEXEC
  ASSERT_GE(open_file, 0);
  EXPECT_EQ(run("for f in /proc/$$/fd/*; do readlink \"$f\"; done > " + file("out") + "; true").outcome,
            Outcome::sent);
  ::close(open_file);
  EXPECT_FALSE(contains(written(), "of_the_run")) << written();
  EXPECT_TRUE(contains(written(), "/dev/null")) << written();
}

TEST_F(Command, HasTheDefaultSignalHandlers) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  const Delivery delivery = run("kill -PIPE $$");
  std::signal(SIGPIPE, before);
  EXPECT_TRUE(contains(delivery.problem, "signal 13")) << delivery.problem;
}

TEST_F(Command, ItsFailureSaysWhatHappened) {
  const Delivery failed = run("exit 3");
  EXPECT_EQ(failed.outcome, Outcome::never);
  EXPECT_TRUE(contains(failed.problem, "exit code 3")) << failed.problem;
  EXPECT_TRUE(contains(run("no_such_program_at_all").problem, "no such program"));
}

TEST_F(Command, NeedNotReadItsInput) {
  for (int i = 0; i < 5; i++) EXPECT_EQ(run("true").outcome, Outcome::sent);
}

TEST_F(Command, IsEndedWithItsChildrenWhenItTakesTooLong) {
  const auto begin = std::chrono::steady_clock::now();
  const Delivery delivery = run("sleep 600 & echo $! > " + file("out") + "; wait", 0.5);
  EXPECT_LT(seconds_since(begin), 20);
  EXPECT_EQ(delivery.outcome, Outcome::never);
  EXPECT_TRUE(contains(delivery.problem, "longer than 0.5 s")) << delivery.problem;
  const std::string stat = "/proc/" + std::to_string(std::stoi(written())) + "/stat";
  const auto is_running = [&] {  // a process that has ended may wait for its parent to notice
    return std::filesystem::exists(stat) && !contains(read_file(stat), ") Z ");
  };
  while (is_running() && seconds_since(begin) < 20) ::usleep(1000);
  EXPECT_FALSE(is_running());
}

}  // namespace
}  // namespace trainer
