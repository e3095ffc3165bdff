// What a run saves besides tensors: best evaluation, history, budgets, length, settings that must not change.
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "run/fixed_settings.h"
#include "run/run_progress.h"
#include "run/saved_splits.h"
#include "support/error_message.h"
#include "support/golden_directory.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;
using test::TemporaryDirectory;

MetricRow evaluation(int64_t step, double value, const std::string& metric = "eval_loss") {
  return {"eval", {{"step", step}, {metric, value}}};
}

TEST(BestMetric, CountsEvaluationsThatAreNoBetterAlsoAcrossAStop) {
  TrainingConfig config;
  config.early_stopping_patience = 2;
  BestMetric best(config);
  EXPECT_TRUE(best.add(evaluation(10, 2.0)));
  EXPECT_TRUE(best.add(evaluation(20, 1.5)));
  EXPECT_FALSE(best.add(evaluation(30, 1.5)));
  EXPECT_FALSE(best.patience_is_over());
  RunPosition saved;
  best.save(saved);
  BestMetric again(config);
  again.restore(saved);
  EXPECT_FALSE(again.add(evaluation(40, std::nan(""))));
  EXPECT_TRUE(again.patience_is_over());
  EXPECT_EQ(again.step(), 20);
  EXPECT_EQ(again.value(), 1.5);
}

TEST(BestMetric, OfAnotherMetricOrOtherDataCountsNothing) {
  TrainingConfig config;
  config.early_stopping_patience = 1;
  BestMetric best(config, "these data");
  best.add(evaluation(10, 2.0));
  best.add(evaluation(20, 2.5));
  RunPosition saved;
  best.save(saved);
  BestMetric other_data(config, "other data");
  EXPECT_FALSE(other_data.restore(saved));
  EXPECT_FALSE(other_data.patience_is_over());
  EXPECT_TRUE(other_data.add(evaluation(30, 3.0)));
  config.metric_for_best_model = "token_accuracy";
  BestMetric other_metric(config, "these data");
  EXPECT_FALSE(other_metric.restore(saved));
  EXPECT_EQ(other_metric.value(), std::nullopt);
  config.metric_for_best_model = "eval_loss";
  BestMetric same(config, "these data");
  EXPECT_TRUE(same.restore(saved));
  EXPECT_TRUE(same.patience_is_over());
  EXPECT_TRUE(BestMetric(config, "other data").restore({})) << "nothing was evaluated yet";
}

TEST(BestMetric, WhatIsCountedAsGoodShallBeLarge) {
  TrainingConfig config;
  config.metric_for_best_model = "rougeL";
  BestMetric best(config);
  EXPECT_TRUE(best.add(evaluation(10, 0.2, "eval_rougeL")));
  EXPECT_FALSE(best.add(evaluation(20, 0.1, "eval_rougeL")));
  EXPECT_TRUE(best.add(evaluation(30, 0.3, "eval_rougeL")));
  const std::string message = error_message<ConfigError>([&] { best.add(evaluation(40, 1.0)); });
  EXPECT_TRUE(contains(message, "eval_rougeL")) << message;
  EXPECT_TRUE(contains(message, "it has loss")) << message;
}

TEST(History, AnIntervalThatIsStoppedInTheMiddleHasTheSameMean) {
  const auto add = [](History& history, int64_t from, int64_t to) {
    for (int64_t step = from; step <= to; step++) {
      RunPosition position;
      position.step = step;
      StepResult result;
      result.loss = 1.0 / static_cast<double>(step);
      history.add_step(position, result);
    }
  };
  History whole(4), first(4), second(4);
  add(whole, 1, 8);
  add(first, 1, 6);
  RunPosition saved;
  first.save(saved);
  second.restore(first.rows(), saved);
  add(second, 7, 8);
  EXPECT_EQ(second.rows(), whole.rows());
  EXPECT_EQ(whole.rows().size(), 2u);
  EXPECT_EQ(whole.rows()[0]["loss"], (1.0 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4) / 4);
}

TEST(SavedBudgets, ArePutBackUnderTheSameSizesAndLimitsOnly) {
  Config config;
  BatchBudgets learned;
  learned.training = {2, 7, 300, 5};
  BatchBudget generation{1, 3, 0, 0};
  const auto kept = budgets_to_keep(config, c10::kCPU, learned, &generation);
  BatchBudgets found;
  BatchBudget answers;
  ASSERT_TRUE(put_back_budgets(kept, config, c10::kCPU, found, &answers));
  EXPECT_EQ(found.training.halvings, 2);
  EXPECT_EQ(found.training.clean, 7);
  EXPECT_EQ(found.training.recompute_from, 300);
  EXPECT_EQ(found.training.recompute_clean, 5);
  EXPECT_EQ(answers.halvings, 1);
  Config smaller = config, limited = config;
  smaller.training.batch_size = 2;
  limited.memory.limit = "1GB";
  BatchBudgets untouched;
  EXPECT_FALSE(put_back_budgets(kept, smaller, c10::kCPU, untouched, nullptr));
  EXPECT_FALSE(put_back_budgets(kept, limited, c10::kCPU, untouched, nullptr));
  EXPECT_FALSE(put_back_budgets({}, config, c10::kCPU, untouched, nullptr));
  EXPECT_EQ(untouched.training.halvings, 0);
}

TEST(RunLength, OfARunThatGoesOnIsTheSameUnlessTheBatchChanges) {
  Config config;
  config.training.effective_batch_size = 8;
  config.training.num_train_epochs = 2.5;
  const RunLength length = run_length(config, 100);
  EXPECT_EQ(length.total_steps, 33);  // 13 an epoch
  RunPosition position;
  for (int64_t step = 1; step <= length.total_steps; step++) {
    const int64_t left = 100 - position.samples_seen % 100;
    position.step = step;
    position.samples_seen += std::min<int64_t>(8, left);
    EXPECT_EQ(run_length(config, 100, position).total_steps, 33) << step;
    EXPECT_EQ(is_due(IntervalStrategy::epoch, 1, position, length), step % 13 == 0) << step;
  }
  // After one epoch in 13 steps, 1.5 epochs in steps of 4 samples.
  config.training.effective_batch_size = 4;
  position.step = 13;
  position.samples_seen = 100;
  EXPECT_EQ(run_length(config, 100, position).total_steps, 13 + 38);
}

TEST(FixedSettings, KnowModelAndDataByContent) {
  TemporaryDirectory directory;
  Config config;
  config.model.path = (golden_directory("qwen2") / "model").string();
  const std::string data = (directory / "data.jsonl").string(), moved = (directory / "moved.jsonl").string();
  const auto put = [](const std::string& path, const std::string& text) { std::ofstream(path) << text; };
  put(data, "{\"text\": \"a\"}\n");
  put(moved, "{\"text\": \"a\"}\n");
  config.data.train = {data};
  const auto before = fixed_settings(config);
  config.data.train = {moved};
  config.training.batch_size = 2;
  config.training.effective_batch_size = 8;
  EXPECT_EQ(fixed_settings(config), before);
  config.data.train = {{moved, 2}};
  EXPECT_NE(fixed_settings(config).at("data.train"), before.at("data.train"));
  config.data.train = {directory.path().string()};
  EXPECT_NE(fixed_settings(config).at("data.train"), before.at("data.train"));
  config.data.train = {moved};
  config.data.eval.held_out = 0.1;
  EXPECT_NE(fixed_settings(config), before);
  config.data.eval = {};
  EXPECT_EQ(fixed_settings(config), before);
  put(moved, "{\"text\": \"b\"}\n");
  config.seed = 7;
  config.lora.emplace();
  std::set<std::string> changed;
  for (const FixedDifference& difference : differences(before, fixed_settings(config)))
    changed.insert(difference.key);
  for (const char* key : {"data.train", "seed", "lora.r", "lora.target_modules"})
    EXPECT_TRUE(changed.contains(key)) << key;
  EXPECT_FALSE(changed.contains("model.path"));
  config.model.path = (golden_directory("qwen2_yarn") / "model").string();
  EXPECT_NE(fixed_settings(config).at("model.path"), before.at("model.path"));
}

}  // namespace
}  // namespace trainer
