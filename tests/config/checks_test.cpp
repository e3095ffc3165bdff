// What a training run needs, and keys that contradict each other.
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/config/load.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;

class CheckForTraining : public ::testing::Test {
 protected:
  CheckForTraining() {
    std::filesystem::create_directory(directory_ / "model");
    std::ofstream(directory_ / "model/config.json") << "{}";
    std::ofstream(directory_ / "rows.jsonl") << "{}\n";
    config_.model.path = (directory_ / "model").string();
    config_.data.train = {(directory_ / "rows.jsonl").string()};
    config_.output_dir = (directory_ / "out").string();
  }

  // The one problem that there is.
  std::string problem() const {
    const std::vector<std::string> problems = check_for_training(config_);
    EXPECT_EQ(problems.size(), 1u) << ::testing::PrintToString(problems);
    return problems.empty() ? "" : problems[0];
  }

  test::TemporaryDirectory directory_;
  Config config_;
};

TEST_F(CheckForTraining, FindsNothingWhenAllIsThere) { EXPECT_TRUE(check_for_training(config_).empty()); }

TEST_F(CheckForTraining, AsksForModelAndData) {
  const std::vector<std::string> problems = check_for_training(Config{});
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_TRUE(contains(problems[0], "model.path: is required"));
  EXPECT_TRUE(contains(problems[1], "data.train: is required"));
}

TEST_F(CheckForTraining, NamesMissingFiles) {
  config_.model.path = "Qwen/Qwen2.5-7B";
  EXPECT_TRUE(contains(problem(), "`trainer fetch Qwen/Qwen2.5-7B`"));
  config_.model.path = directory_.path().string();
  EXPECT_TRUE(contains(problem(), "holds no config.json"));
  std::ofstream(directory_ / "adapter_config.json") << "{}";
  EXPECT_TRUE(contains(problem(), "it is an adapter: give its base model here"));
  config_.model.path = (directory_ / "model").string();
  config_.data.train.emplace_back("nope.jsonl");
  EXPECT_EQ(problem(), "data.train: 'nope.jsonl' does not exist");
  config_.data.train = {directory_.path().string()};
  EXPECT_TRUE(check_for_training(config_).empty());
}

TEST_F(CheckForTraining, AnAdapterMustBeOne) {
  config_.lora.emplace().adapter = (directory_ / "nope").string();
  EXPECT_TRUE(contains(problem(), "lora.adapter: "));
  EXPECT_TRUE(contains(problem(), "does not exist"));
  config_.lora->adapter = directory_.path().string();
  EXPECT_TRUE(contains(problem(), "holds no adapter_config.json"));
}

TEST_F(CheckForTraining, EvaluationNeedsFiles) {
  config_.training.eval_strategy = IntervalStrategy::steps;
  EXPECT_TRUE(contains(problem(), "training.eval_strategy: needs data.eval"));
  config_.data.eval.sources.emplace_back("nope.jsonl");
  EXPECT_TRUE(contains(problem(), "data.eval: 'nope.jsonl' does not exist"));
  config_.data.eval = {};
  config_.training.eval_strategy = IntervalStrategy::no;
  config_.evaluation.generate = true;
  EXPECT_TRUE(contains(problem(), "evaluation.generate: needs evaluations"));
  config_.evaluation.generate = false;
  config_.evaluation.metrics = {"bleu", "meteor"};
  EXPECT_TRUE(contains(problem(), "evaluation.metrics: expected exact_match, f1"));
}

TEST_F(CheckForTraining, OutputIsADirectory) {
  config_.output_dir = config_.data.train[0].path;
  EXPECT_TRUE(contains(problem(), "is a file, not a directory"));
}

TEST_F(CheckForTraining, FindsContradictions) {
  config_.training.effective_batch_size = 8;
  config_.training.gradient_accumulation_steps = 1;
  EXPECT_TRUE(contains(problem(), "training.gradient_accumulation_steps is set as well"));
  config_.training.gradient_accumulation_steps.reset();
  config_.optimizer.warmup_steps = 10;
  config_.optimizer.warmup_ratio = 0.1;
  EXPECT_TRUE(contains(problem(), "optimizer.warmup_steps is set as well"));
  config_.optimizer.warmup_ratio = 0;
  config_.optimizer.master_weights = true;
  config_.model.dtype = ModelDtype::fp32;
  EXPECT_TRUE(contains(problem(), "is for bf16 weights"));
  config_.model.dtype = ModelDtype::bf16;
  config_.training.max_steps = 0;
  EXPECT_TRUE(contains(problem(), "0 trains nothing"));
  config_.training.max_steps = -1;
  config_.data.kind = DataKind::text;
  config_.data.target = "answer";
  EXPECT_TRUE(contains(problem(), "data.target: has no effect"));
}

TEST_F(CheckForTraining, HoldsValuesOfAProgramAgainstTheirRange) {
  config_.training.effective_batch_size = 0;
  EXPECT_TRUE(contains(problem(), "training.effective_batch_size: must be at least 1, found 0"));
  config_.training.effective_batch_size.reset();
  config_.training.label_smoothing = 1;
  EXPECT_TRUE(contains(problem(), "must be at least 0 and below 1, found 1"));
}

TEST_F(CheckForTraining, AMissingFileComesWithTheOtherProblems) {
  const std::string message = test::error_message<ConfigError>([&] {
    load_training_config(std::nullopt, {"data.train=nope.jsonl", "seed=x", "typo"});
  });
  EXPECT_EQ(message,
            "4 problems in the configuration:\n"
            "  unexpected argument 'typo'; settings are key=value\n"
            "  override 'seed=x': seed: expected an integer, found 'x'\n"
            "  model.path: is required: the directory of a model in Hugging Face format\n"
            "  override 'data.train=nope.jsonl': data.train: 'nope.jsonl' does not exist");
}

}  // namespace
}  // namespace trainer
