#include "run/run_progress.h"

#include <gtest/gtest.h>

#include "trainer/base/files.h"

#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::TemporaryDirectory;

// What a checkpoint keeps of it, but for the time.
std::string saved(const RunProgress& progress, const std::filesystem::path& directory) {
  RunPosition position = progress.to_position(123, {{"training.halvings", 2}});
  position.seconds_trained = 0;
  write_position(directory, position);
  write_trainer_state(directory, progress.to_trainer_state("out"));
  return read_file(directory / kPositionFile) + read_file(directory / kTrainerStateFile);
}

// `count` steps of two samples; each third is bad, each fourth is evaluated.
void take_steps(RunProgress& progress, int64_t count) {
  EffectiveBatch batch;
  batch.samples.resize(2);
  batch.tokens = 10;
  for (int64_t i = 0; i < count; i++) {
    progress.advance(batch);
    const int64_t step = progress.position.step;
    StepResult result;
    result.loss = 1.0 / static_cast<double>(step);
    result.skipped = step % 3 == 0;
    MetricRow row;
    progress.numerics.add(step, result, row, [] { return std::vector<std::string>{"a:1", "a:2"}; });
    progress.history.add_step(progress.position, result);
    if (step % 4 != 0) continue;
    const MetricRow evaluation{"eval", {{"step", step}, {"eval_loss", step == 8 ? 0.5 : 2.0}}};
    progress.history.add_evaluation(evaluation);
    progress.best.add(evaluation);
  }
}

TEST(RunProgress, IsTheSameAfterItWasSavedAndRestoredAndGoesOnAlike) {
  const TemporaryDirectory directory;
  Config config;
  config.output_dir = directory.path().string();
  config.training.logging_steps = 5;
  config.training.early_stopping_patience = 3;
  const RunLength length{.dataset_size = 7, .steps_per_epoch = 4, .total_steps = 20};
  RunPosition begin;
  begin.fixed = {{"seed", "42"}};
  begin.began_from = "elsewhere/checkpoint-1";
  RunProgress whole(config, length, begin);
  take_steps(whole, 12);
  whole.position.evaluation_due = true;
  const std::string before = saved(whole, directory.path());

  RunProgress restored(config, length, read_position(directory.path()),
                       read_trainer_state(directory.path()).log_history);
  EXPECT_EQ(saved(restored, directory.path()), before);
  EXPECT_TRUE(restored.position.evaluation_due);
  EXPECT_EQ(restored.best.step(), 8);
  for (RunProgress* progress : {&whole, &restored}) take_steps(*progress, 8);
  EXPECT_EQ(saved(restored, directory.path()), saved(whole, directory.path()));
  EXPECT_TRUE(restored.is_over());
}

using Rows = nlohmann::ordered_json;

Rows rows_with(const Rows& rows, const char* key) {
  Rows found = Rows::array();
  for (const Rows& row : rows)
    if (row.contains(key)) found.push_back(row);
  return found;
}

// Steps whose loss is their number, each fifth evaluated.
void take_long_steps(History& history, int64_t from, int64_t to) {
  for (int64_t step = from + 1; step <= to; step++) {
    RunPosition position;
    position.step = step;
    StepResult result;
    result.loss = static_cast<double>(step);
    history.add_step(position, result);
    if (step % 5 == 0 || step == to) history.add_evaluation({"eval", {{"eval_loss", 1.0}, {"step", step}}});
  }
}

TEST(History, OfALongRunIsThinnedAndStillStandsForAllSteps) {
  History history(1);
  take_long_steps(history, 0, 70'001);
  const Rows steps = rows_with(history.rows(), "loss"), evaluations = rows_with(history.rows(), "eval_loss");
  EXPECT_LE(std::ssize(steps), History::kMostSteps);
  EXPECT_LE(std::ssize(evaluations), History::kMostEvaluations);
  EXPECT_GE(std::ssize(steps), History::kMostSteps / 2);
  EXPECT_GE(std::ssize(evaluations), History::kMostEvaluations / 2);
  const int64_t distance = steps[0].at("step").get<int64_t>();
  EXPECT_EQ(distance, 64);
  for (size_t i = 0; i < steps.size(); i++) {
    const int64_t step = steps[i].at("step").get<int64_t>();
    ASSERT_EQ(step, static_cast<int64_t>(i + 1) * distance) << "as far apart from each other";
    ASSERT_EQ(steps[i].at("loss"), static_cast<double>(step) - static_cast<double>(distance - 1) / 2)
        << "the mean of the steps since the row before";
  }
  EXPECT_EQ(evaluations.back().at("step"), 70'001) << "the newest is always there";
  int64_t before = 0;
  for (const Rows& row : history.rows()) {
    EXPECT_GE(row.at("step").get<int64_t>(), before) << "in the order of the steps";
    before = row.at("step").get<int64_t>();
  }
}

TEST(History, IsThinnedAlikeInARunThatWasResumed) {
  for (const int64_t stop : {900, 1003, 1999, 2000, 2017, 4444, 6001, 9'998}) {
    History whole(1), first(1), resumed(1);
    take_long_steps(first, 0, stop);
    take_long_steps(whole, 0, stop);
    RunPosition position;
    position.step = stop;
    first.save(position);
    resumed.restore(first.rows(), position);
    take_long_steps(resumed, stop, 10'000);
    take_long_steps(whole, stop, 10'000);
    EXPECT_EQ(resumed.rows().dump(), whole.rows().dump()) << stop;
  }
}

TEST(History, ThatAnEarlierVersionKeptWholeIsThinnedWhenTheRunResumes) {
  Rows rows = Rows::array();
  for (int64_t step = 1; step <= 70'000; step++) {
    rows.push_back({{"learning_rate", 1e-4}, {"loss", static_cast<double>(step)}, {"step", step}});
    if (step % 2 == 0) rows.push_back({{"eval_loss", 1.0}, {"step", step}});
  }
  History history(1);
  history.restore(rows, {});
  EXPECT_LE(std::ssize(history.rows()), History::kMostSteps + History::kMostEvaluations);
  EXPECT_EQ(rows_with(history.rows(), "loss")[0].at("step"), 64);
  EXPECT_EQ(rows_with(history.rows(), "loss")[0].at("loss"), 32.5);
}

}  // namespace
}  // namespace trainer
