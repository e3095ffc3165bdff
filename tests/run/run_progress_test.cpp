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

}  // namespace
}  // namespace trainer
