// A whole run in this process: opened, stopped, resumed, complete.
#include "trainer/run/train.h"

#include <algorithm>
#include <csignal>
#include <map>

#include <gtest/gtest.h>

#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/stop_signals.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/run_position.h"
#include "trainer/text/chat_template.h"

#include "formats/trainer_state.h"
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
  EXPECT_TRUE(contains(message, "checkpoint-3. To go on: trainer --config ")) << message;
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
  const std::string message = error_message<Error>(
      [&] { start(tiny.config("whole", with(chat, "data.template_date=2026-09-01")), whole); });
  EXPECT_TRUE(contains(message, "data.template_date: 2026-05-31 there, 2026-09-01 here")) << message;
  EXPECT_TRUE(
      contains(read_file(tiny.output("whole") / "data_report.json"), R"("template_date": "2026-05-31")"));
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

// A run whose evaluations get worse, so that the best model is an early one. Each step is evaluated and
// saved.
class BestModel : public testing::Test {
 protected:
  BestModel() {
    log::set_listener([this](log::Level level, const std::string& text) {
      if (level == log::Level::warning) warnings_ += text + "\n";
    });
  }
  ~BestModel() override { log::set_listener({}); }

  Config config(const std::string& name, int64_t steps, const std::string& more = "seed=42") const {
    return tiny_.config(
        name, {"data.eval=0.2", "training.eval_strategy=steps", "training.eval_steps=1",
               "save.strategy=steps", "save.steps=1", "save.total_limit=0",
               "training.load_best_model_at_end=true", "optimizer.learning_rate=1",
               "optimizer.lr_scheduler_type=constant", "training.max_steps=" + std::to_string(steps), more});
  }
  void train_to(const Config& config) {
    Listener listener;
    start(config, listener);
    for (const MetricRow& row : listener.rows)
      if (row.kind == "eval") losses_[row.values.at("step")] = row.values.at("eval_loss");
  }
  int64_t best_of(const std::vector<int64_t>& steps) const {
    return *std::ranges::min_element(steps, {}, [&](int64_t step) { return losses_.at(step); });
  }
  std::filesystem::path checkpoint(const std::string& name, int64_t step) const {
    return checkpoint_path(tiny_.output(name), step);
  }
  void expect_result_of(const std::string& name, const std::filesystem::path& from) const {
    EXPECT_EQ(read_file(tiny_.output(name) / "model.safetensors"), read_file(from / "model.safetensors"));
    const auto path = read_trainer_state(tiny_.output(name)).best_model_checkpoint;
    ASSERT_TRUE(path);
    EXPECT_TRUE(std::filesystem::equivalent(*path, from)) << *path;
  }

  TinyRun tiny_;
  std::map<int64_t, double> losses_;  // of evaluations, by step
  std::string warnings_;
};

TEST_F(BestModel, ThatIsGoneAtAResumeIsReplacedByTheBestThatIsLeft) {
  train_to(config("out", 4));
  const int64_t lost = best_of({1, 2, 3, 4});
  ASSERT_LT(lost, 4);
  std::filesystem::remove_all(checkpoint("out", lost));
  warnings_.clear();
  train_to(config("out", 6));
  std::vector<int64_t> left{1, 2, 3, 4, 5, 6};
  std::erase(left, lost);
  EXPECT_TRUE(contains(warnings_, "the best checkpoint so far is gone: " + checkpoint("out", lost).string()))
      << warnings_;
  EXPECT_TRUE(contains(warnings_, "the best that is left is of step ")) << warnings_;
  expect_result_of("out", checkpoint("out", best_of(left)));
}

TEST_F(BestModel, IsTakenFromWhereTheRunBegan) {
  train_to(config("first", 4));
  const int64_t best = best_of({1, 2, 3, 4});
  ASSERT_LT(best, 4);
  warnings_.clear();
  train_to(config("second", 5, "resume=" + checkpoint("first", 4).string()));
  ASSERT_LT(losses_.at(best), losses_.at(5));
  EXPECT_FALSE(contains(warnings_, "is gone")) << warnings_;
  expect_result_of("second", checkpoint("first", best));
}

TEST_F(BestModel, OfNoOtherCheckpointIsForgottenWithAllOfThem) {
  train_to(config("first", 4));
  const int64_t best = best_of({1, 2, 3, 4});
  ASSERT_LT(best, 4);
  std::filesystem::create_directory(tiny_.output("moved"));
  const std::filesystem::path moved = tiny_.output("moved") / "checkpoint-4";
  std::filesystem::rename(checkpoint("first", 4), moved);
  warnings_.clear();
  train_to(config("second", 5, "resume=" + moved.string()));
  EXPECT_TRUE(contains(warnings_, "the best checkpoint so far is gone")) << warnings_;
  expect_result_of("second", best_of({4, 5}) == 4 ? moved : checkpoint("second", 5));
}

TEST_F(BestModel, ThatIsDamagedAtTheEndIsReplacedByTheBestThatIsLeft) {
  train_to(config("out", 4));
  const int64_t lost = best_of({1, 2, 3, 4});
  ASSERT_LT(lost, 4);
  std::filesystem::resize_file(checkpoint("out", lost) / "model.safetensors", 1000);
  warnings_.clear();
  train_to(config("out", 5));
  std::vector<int64_t> left{1, 2, 3, 4, 5};
  std::erase(left, lost);
  EXPECT_TRUE(contains(warnings_, "cannot be read")) << warnings_;
  EXPECT_TRUE(contains(warnings_, "the result is ")) << warnings_;
  expect_result_of("out", checkpoint("out", best_of(left)));
}

}  // namespace
}  // namespace trainer
