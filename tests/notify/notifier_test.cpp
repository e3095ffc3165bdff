// What is told of a run, as a server on this machine receives it.
#include "notify/notifier.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"

#include "base/progress.h"
#include "support/error_message.h"
#include "support/http_server.h"

namespace trainer {
namespace {

using test::contains;
using test::HttpServer;
using Json = nlohmann::ordered_json;

MetricRow step_row(int64_t step, double loss = 2.5) {
  return {"train",
          {{"step", step},
           {"epoch", 0.5},
           {"loss", loss},
           {"learning_rate", 1e-3},
           {"tokens", 2000},
           {"step_seconds", 0.5},
           {"memory_peak", 3'000'000'000},
           {"memory_limit", 8'000'000'000}}};
}

MetricRow evaluation(int64_t step, double loss) { return {"eval", {{"step", step}, {"eval_loss", loss}}}; }

class NotifierTest : public ::testing::Test {
 protected:
  NotifierTest() {
    config_.notify.webhook = server_.url("/verysecret");
    config_.output_dir = "runs/my-run/";
  }

  // What arrived, by now: to be called after finished() or failed().
  std::vector<Json> messages() const {
    std::vector<Json> found;
    for (const std::string& request : server_.requests())
      found.push_back(Json::parse(request.substr(request.find("\r\n\r\n") + 4)));
    return found;
  }
  std::vector<std::string> kinds() const {
    std::vector<std::string> found;
    for (const Json& message : messages()) found.push_back(message["event"]);
    return found;
  }

  HttpServer server_{[](const std::string&) { return HttpServer::text(200, "ok"); }};
  Config config_;
};

using Kinds = std::vector<std::string>;

TEST_F(NotifierTest, ARunIsToldFromItsFirstStepToItsResult) {
  Notifier notifier(config_);
  notifier.begin(0, {.total_steps = 1000});
  for (int64_t step = 1; step <= 1000; step++) notifier.write(step_row(step));
  notifier.write(evaluation(1000, 1.5));
  notifier.write_best(evaluation(1000, 1.5));
  notifier.finished();
  ASSERT_EQ(kinds(), (Kinds{"start", "best", "finished"}));
  const Json start = messages()[0], finished = messages()[2];
  const std::string text = start["text"];
  EXPECT_TRUE(text.starts_with("my-run has started on ")) << text;
  EXPECT_TRUE(contains(text,
                       ": step 1 of 1,000 (0 %)\nloss 2.5\n4,000 tok/s · about 8 min 20 s left\n"
                       "memory 3.00 GB of 8.00 GB"))
      << text;
  EXPECT_EQ(start["run"], "my-run");
  EXPECT_EQ(start["step"], 1);
  EXPECT_EQ(start["total_steps"], 1000);
  EXPECT_EQ(start["tokens_per_second"], 4000);
  EXPECT_TRUE(contains(messages()[1]["text"], "eval_loss 1.5 (step 1,000)"));
  EXPECT_TRUE(contains(finished["text"], "my-run is finished: 1,000 steps")) << finished["text"];
  EXPECT_TRUE(contains(finished["text"], "best: eval_loss 1.5 (step 1,000)\nresult: runs/my-run/"));
  EXPECT_EQ(finished["exit_code"], 0);
  EXPECT_EQ(finished["step"], 1000);
}

TEST_F(NotifierTest, ProgressIsToldAtItsInterval) {
  config_.notify.every_minutes = 1e-9;
  config_.notify.events = {"progress"};
  Notifier notifier(config_);
  notifier.begin(10, {.total_steps = 100});
  notifier.write(step_row(11));
  const auto tell = [&](int64_t step) {
    const size_t before = messages().size();
    notifier.write(step_row(step, static_cast<double>(step)));
    while (messages().size() == before) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  tell(12);
  tell(13);
  notifier.finished();
  ASSERT_EQ(kinds(), (Kinds{"progress", "progress"}));
  EXPECT_TRUE(messages()[1]["text"].get<std::string>().starts_with("my-run step 13 of 100 (13 %)\nloss 13\n"))
      << messages()[1]["text"];
}

TEST_F(NotifierTest, ARecoveryIsOneMessageAndAWarningAnother) {
  Notifier notifier(config_);
  notifier.begin(0, {.total_steps = 10});
  notifier.write(step_row(1));
  log::warning("the data are slow");
  log::info("nothing to tell");
  log::warning("out of memory (backward): retrying");
  notifier.write({"recovery", {{"step", 2}, {"message", "CUDA out of memory"}}});
  notifier.write(step_row(2));
  notifier.finished();
  ASSERT_EQ(kinds(), (Kinds{"start", "warning", "recovery", "finished"}));
  EXPECT_TRUE(contains(messages()[1]["text"], "the data are slow"));
  EXPECT_EQ(messages()[2]["message"], "out of memory (backward): retrying");
}

TEST_F(NotifierTest, ManyWarningsAreCounted) {
  config_.notify.events = {"warning", "finished"};
  Notifier notifier(config_);
  notifier.begin(0, {.total_steps = 10});
  for (int i = 0; i < 20; i++) log::warning("warning " + std::to_string(i));
  notifier.finished();
  EXPECT_EQ(kinds(), (Kinds{"warning", "warning", "warning", "warning", "warning", "finished"}));
  EXPECT_TRUE(contains(messages().back()["text"], "(and 15 more warnings in log.txt)"))
      << messages().back()["text"];
}

TEST_F(NotifierTest, AFailureHasItsMessageItsCodeAndTheLastLines) {
  Notifier notifier(config_);
  notifier.begin(0, {.total_steps = 10});
  notifier.write(step_row(1));
  for (int i = 0; i < 20; i++) log::info("line " + std::to_string(i));
  notifier.failed(std::make_exception_ptr(OutOfMemoryError("out of memory: asked for 3 GB")));
  ASSERT_EQ(kinds(), (Kinds{"start", "failed"}));
  const Json failed = messages()[1];
  EXPECT_TRUE(failed["text"].get<std::string>().starts_with(
      "my-run has failed (exit code 5, out of memory), step 1 of 10 (10 %)\nout of memory: asked for 3 GB"))
      << failed["text"];
  EXPECT_EQ(failed["exit_code"], 5);
  EXPECT_EQ(failed["lines"].size(), 8u);
  EXPECT_EQ(failed["lines"].back(), "line 19");
}

TEST_F(NotifierTest, EveryKindOfErrorHasItsExitCode) {
  const std::vector<std::pair<std::exception_ptr, int>> errors{
      {std::make_exception_ptr(ConfigError("x")), 2},
      {std::make_exception_ptr(DataError("x")), 3},
      {std::make_exception_ptr(FormatError("x")), 4},
      {std::make_exception_ptr(std::bad_alloc()), 5},
      {std::make_exception_ptr(DeviceError("x")), 6},
      {std::make_exception_ptr(NumericsError("x")), 7},
      {std::make_exception_ptr(DeviceFault("x")), 8},
      {std::make_exception_ptr(std::logic_error("x")), 1},
      {std::make_exception_ptr(7), 1}};
  for (const auto& [error, code] : errors) Notifier(config_).failed(error);
  const std::vector<Json> sent = messages();
  ASSERT_EQ(sent.size(), errors.size());
  for (size_t i = 0; i < sent.size(); i++) {
    EXPECT_EQ(sent[i]["event"], "failed");
    EXPECT_EQ(sent[i]["exit_code"], errors[i].second);
  }
}

TEST_F(NotifierTest, AStopIsNoFailure) {
  Notifier notifier(config_);
  notifier.failed(std::make_exception_ptr(Error(ExitCode::interrupted, "SIGTERM: saved in checkpoint-3")));
  ASSERT_EQ(kinds(), Kinds{"stopped"});
  EXPECT_TRUE(contains(messages()[0]["text"], "my-run was stopped, no step yet\nSIGTERM: saved in"));
  EXPECT_FALSE(messages()[0].contains("lines"));
}

TEST_F(NotifierTest, AddressesInMessagesAreHidden) {
  Notifier notifier(config_);
  log::warning("asked " + config_.notify.webhook);
  notifier.failed(std::make_exception_ptr(FormatError("no answer from " + config_.notify.webhook)));
  EXPECT_EQ(kinds(), (Kinds{"warning", "failed"}));
  for (const Json& message : messages()) EXPECT_FALSE(contains(message.dump(), "verysecret")) << message;
}

TEST_F(NotifierTest, OnlyTheEventsThatAreAskedForAreTold) {
  config_.notify.events = {"finished"};
  Notifier notifier(config_);
  notifier.begin(0, {.total_steps = 2});
  notifier.write(step_row(1));
  log::warning("a warning");
  notifier.write(step_row(2));
  notifier.finished();
  EXPECT_EQ(kinds(), Kinds{"finished"});
}

TEST_F(NotifierTest, WithoutAnAddressItDoesNothing) {
  config_.notify.webhook = "";
  Notifier notifier(config_);
  notifier.begin(0, {.total_steps = 2});
  notifier.write(step_row(1));
  notifier.finished();
  EXPECT_EQ(kinds(), Kinds{});
}

TEST(NotifierWithDeadServer, EndsAfterSomeSeconds) {
  HttpServer silent([](const std::string&) { return ""; });
  Config config;
  config.notify.webhook = silent.url();
  config.notify.command = "sleep 600";
  const auto begin = std::chrono::steady_clock::now();
  {
    Notifier notifier(config);
    notifier.begin(0, {.total_steps = 1000});
    for (int64_t step = 1; step <= 1000; step++) notifier.write(step_row(step));
    EXPECT_LT(seconds_since(begin), 3);
    notifier.finished();
  }
  EXPECT_LT(seconds_since(begin), 12);  // five, and the time to abort
}

}  // namespace
}  // namespace trainer
