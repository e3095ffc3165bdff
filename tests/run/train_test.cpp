// A whole run in this process: opened, stopped, resumed, complete.
#include "trainer/run/train.h"

#include <csignal>

#include <gtest/gtest.h>

#include "trainer/base/stop_signals.h"
#include "trainer/base/files.h"
#include "trainer/formats/run_position.h"
#include "trainer/text/chat_template.h"

#include "run/output_directory.h"
#include "run/tiny_run.h"
#include "support/error_message.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;
using test::TinyRun;

// Keeps the rows of a run, and asks it to stop after a step.
struct Listener : MetricSink {
  explicit Listener(int64_t stop_after_step = 0) : stop_after(stop_after_step) {}
  void write(const MetricRow& row) override {
    rows.push_back(row);
    if (row.kind == "train" && row.values.at("step") == stop_after) ::raise(SIGTERM);
  }
  std::vector<double> values(const std::string& kind, const std::string& key) const {
    std::vector<double> found;
    for (const MetricRow& row : rows)
      if (row.kind == kind) found.push_back(row.values.at(key).get<double>());
    return found;
  }

  int64_t stop_after;
  std::vector<MetricRow> rows;
};

// One start of a run, as a process of its own would make it.
void start(const Config& config, Listener& listener) {
  const StopSignals signals;
  train(config, {&listener});
}

TEST(Train, ARunThatWasStoppedAndResumedEndsWithTheSameBits) {
  const TinyRun tiny;
  Listener whole, first(3), second;
  start(tiny.config("whole"), whole);
  const Config config = tiny.config("stopped");
  const std::string message = error_message<Error>([&] { start(config, first); });
  EXPECT_TRUE(contains(message, "SIGTERM: the run ends after step 3 of 6")) << message;
  EXPECT_TRUE(contains(message, "checkpoint-3; the same command resumes from there")) << message;
  EXPECT_EQ(first.values("train", "step"), (std::vector<double>{1, 2, 3}));
  start(config, second);
  EXPECT_EQ(second.values("train", "step"), (std::vector<double>{4, 5, 6}));
  std::vector<double> losses = first.values("train", "loss");
  for (const double loss : second.values("train", "loss")) losses.push_back(loss);
  EXPECT_EQ(losses, whole.values("train", "loss"));
  EXPECT_EQ(read_file(tiny.output("stopped") / "model.safetensors"),
            read_file(tiny.output("whole") / "model.safetensors"));
}

std::vector<std::string> with(std::vector<std::string> overrides, const std::string& more) {
  overrides.push_back(more);
  return overrides;
}

TEST(Train, AResumedRunKeepsTheDateOfItsBeginning) {
  const TinyRun tiny;
  const std::vector<std::string> chat = tiny.dated_chat();
  Listener whole, first(3), second;
  start(tiny.config("whole", with(chat, "data.template_date=2026-05-31")), whole);
  error_message<Error>(
      [&] { start(tiny.config("stopped", with(chat, "data.template_date=2026-05-31")), first); });
  start(tiny.config("stopped", chat), second);  // on another day
  EXPECT_EQ(second.values("train", "step"), (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(read_file(tiny.output("stopped") / "model.safetensors"),
            read_file(tiny.output("whole") / "model.safetensors"));
  const std::string message =
      error_message<Error>([&] { start(tiny.config("whole", with(chat, "data.template_date=2026-09-01")), whole); });
  EXPECT_TRUE(contains(message, "data.template_date: 2026-05-31 there, 2026-09-01 here")) << message;
  EXPECT_TRUE(contains(read_file(tiny.output("whole") / "data_report.json"), R"("template_date": "2026-05-31")"));
}

TEST(Train, TheDateOfARunIsTheDayOnWhichItBegan) {
  const TinyRun tiny;
  Listener named, unnamed;
  const std::string day = today();
  start(tiny.config("unnamed", tiny.dated_chat()), unnamed);
  EXPECT_EQ(read_position(tiny.output("unnamed")).fixed.at("data.template_date"), day);
  start(tiny.config("named", with(tiny.dated_chat(), "data.template_date=" + day)), named);
  EXPECT_EQ(unnamed.values("train", "loss"), named.values("train", "loss"));
  Listener other;
  start(tiny.config("other", with(tiny.dated_chat(), "data.template_date=2001-11-11")), other);
  EXPECT_NE(unnamed.values("train", "loss"), other.values("train", "loss"));
}

TEST(Train, AnEvaluationThatAStopCameBeforeIsMadeByTheResumedRun) {
  const TinyRun tiny;
  const Config config =
      tiny.config("out", {"data.eval=0.2", "training.eval_strategy=steps", "training.eval_steps=3"});
  Listener first(3), second;
  error_message<Error>([&] { start(config, first); });
  EXPECT_EQ(first.values("eval", "step"), std::vector<double>{});
  EXPECT_TRUE(read_position(tiny.output("out") / "checkpoint-3").evaluation_due);
  start(config, second);
  EXPECT_EQ(second.values("eval", "step"), (std::vector<double>{3, 6}));
}

TEST(Train, ACompleteRunIsNotTrainedAgainButALongerOneIs) {
  const TinyRun tiny;
  Listener again, longer;
  Listener first;
  start(tiny.config("out"), first);
  start(tiny.config("out"), again);
  EXPECT_TRUE(again.rows.empty());
  start(tiny.config("out", {"training.max_steps=8"}), longer);
  EXPECT_EQ(longer.values("train", "step"), (std::vector<double>{7, 8}));
}

TEST(Train, TheDirectoryOfAnotherRunIsRefused) {
  const TinyRun tiny;
  Listener listener;
  start(tiny.config("out"), listener);
  const std::string message =
      error_message<OutputDirectoryError>([&] { start(tiny.config("out", {"seed=7"}), listener); });
  EXPECT_TRUE(contains(message, "is of another run")) << message;
  EXPECT_TRUE(contains(message, "seed: 42 there, 7 here")) << message;
}

}  // namespace
}  // namespace trainer
