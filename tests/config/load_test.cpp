// Loading a configuration file with overrides.
#include "trainer/config/load.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "support/temporary_directory.h"

namespace trainer {
namespace {

class LoadConfig : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = directory_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }

  Config load(const std::string& text, const std::vector<std::string>& overrides = {}) {
    return load_config(write("test.yaml", text), overrides);
  }

  static Config with(const std::vector<std::string>& overrides) {
    return load_config(std::nullopt, overrides);
  }

  trainer::test::TemporaryDirectory directory_;
};

using Texts = std::vector<std::string>;
using Sources = std::vector<DataSource>;

TEST_F(LoadConfig, WithoutAFileHasTheDefaults) {
  const Config config = with({});
  EXPECT_EQ(config.training.batch_size, 8);
  EXPECT_EQ(config.optimizer.learning_rate, 1e-5);
  EXPECT_EQ(config.device, "auto");
  EXPECT_FALSE(config.lora);
}

// Each form is read, and written so that it is read again.
TEST_F(LoadConfig, ReadsWhatIsRecomputed) {
  const std::vector<std::pair<std::string, Recompute>> forms{
      {"false", false}, {"light", Recompute::light()},    {"3", Recompute::blocks(3)},
      {"true", true},   {"auto", Recompute::automatic()}, {"fit", Recompute::if_needed()}};
  for (const auto& [text, recompute] : forms) {
    const Config config = with({"memory.gradient_checkpointing=" + text});
    EXPECT_EQ(config.memory.gradient_checkpointing, recompute) << text;
    std::ostringstream written;
    write_yaml(config, written);
    EXPECT_EQ(load(written.str()).memory.gradient_checkpointing, recompute) << text;
  }
  EXPECT_EQ(Recompute::light().of(12), 0);
  EXPECT_TRUE(Recompute::light().is_light());
  EXPECT_TRUE(Recompute::blocks(1).is_light());
  EXPECT_FALSE(Recompute(false).is_light());
  EXPECT_FALSE(Recompute::if_needed().is_light());
}

TEST_F(LoadConfig, ReadsEveryTypeOfValue) {
  const Config config = load(R"(
model: {path: /models/t5, dtype: bf16}
lora:
  target_modules: [q, v]
data:
  train: a.jsonl
  eval: [b.jsonl, c.jsonl]
  input: "Translate: {german}"
training:
  num_train_epochs: 0.5
  max_steps: 1_000
  eval_strategy: no
  dropout: 0
optimizer: {learning_rate: 5e-5, adam_epsilon: 1.e-6, lr_scheduler_type: inverse_sqrt}
memory: {gradient_checkpointing: true}
device: cuda:1
)");
  EXPECT_EQ(config.model.path, "/models/t5");
  EXPECT_EQ(config.model.dtype, ModelDtype::bf16);
  EXPECT_EQ(std::get<Texts>(config.lora->target_modules), (Texts{"q", "v"}));
  EXPECT_EQ(config.data.train, Sources{{"a.jsonl"}});
  EXPECT_EQ(config.data.eval.sources, (Sources{{"b.jsonl"}, {"c.jsonl"}}));
  EXPECT_EQ(config.data.input, "Translate: {german}");
  EXPECT_EQ(config.training.num_train_epochs, 0.5);
  EXPECT_EQ(config.training.max_steps, 1000);
  EXPECT_EQ(config.training.eval_strategy, IntervalStrategy::no);
  EXPECT_EQ(config.training.dropout, 0.0);
  EXPECT_EQ(config.optimizer.learning_rate, 5e-5);
  EXPECT_EQ(config.optimizer.adam_epsilon, 1e-6);
  EXPECT_EQ(config.optimizer.lr_scheduler_type, SchedulerType::inverse_sqrt);
  EXPECT_EQ(config.memory.gradient_checkpointing, Recompute(true));
  EXPECT_EQ(config.device, "cuda:1");
}

TEST_F(LoadConfig, OffloadIsAListAWordOrAuto) {
  EXPECT_EQ(with({}).memory.offload, Offload{});
  EXPECT_EQ(load("memory: {offload: [optimizer]}\n").memory.offload, Offload{.optimizer = true});
  EXPECT_EQ(with({"memory.offload=optimizer"}).memory.offload, Offload{.optimizer = true});
  EXPECT_EQ(with({"memory.offload=auto"}).memory.offload, Offload{.automatic = true});
  EXPECT_EQ(with({"memory.offload=[]"}).memory.offload, Offload{});
  EXPECT_EQ(with({"memory.offload=null"}).memory.offload, Offload{});
}

TEST_F(LoadConfig, GpusAreANumberOrAll) {
  EXPECT_EQ(with({}).parallel.gpus.of(8), 1);
  EXPECT_EQ(with({"gpus=4"}).parallel.gpus.of(8), 4);
  EXPECT_EQ(with({"parallel.gpus=all"}).parallel.gpus.of(8), 8);
}

TEST_F(LoadConfig, FilesOfOffloadLieInTheOutputDirectoryIfNothingElseIsSaid) {
  EXPECT_EQ(with({"output_dir=here"}).offload_directory(), "here");
  EXPECT_EQ(
      with({"output_dir=here", "memory.offload=optimizer", "memory.offload_dir=/fast"}).offload_directory(),
      "/fast");
}

TEST_F(LoadConfig, ReadsFilesOfOtherEditors) {
  EXPECT_EQ(load("").training.batch_size, 8);
  EXPECT_EQ(load("# nothing but a comment\n").training.batch_size, 8);
  EXPECT_EQ(load("\xef\xbb\xbftraining:\r\n  batch_size: 3\r\n").training.batch_size, 3);
  EXPECT_EQ(load("training:\ndata:\n  # all commented out\n").training.batch_size, 8);
  EXPECT_EQ(load("---\nseed: 3\n...\n").seed, 3);
}

TEST_F(LoadConfig, OverridesComeLast) {
  const Config config =
      load("training:\n  batch_size: 2\nseed: 1\n",
           {"training.batch_size=16", "learning_rate=1e-4", "device=cpu", "seed=5", "seed=6"});
  EXPECT_EQ(config.training.batch_size, 16);
  EXPECT_EQ(config.optimizer.learning_rate, 1e-4);
  EXPECT_EQ(config.device, "cpu");
  EXPECT_EQ(config.seed, 6);
}

TEST_F(LoadConfig, OverridesOfTextNeedNoQuotesOfYaml) {
  EXPECT_EQ(with({"data.input=Translate: {german} # now"}).data.input, "Translate: {german} # now");
  EXPECT_EQ(with({"data.input={a}={b}"}).data.input, "{a}={b}");
  EXPECT_EQ(with({"data.input='quoted'"}).data.input, "quoted");
  EXPECT_EQ(with({"output_dir=123"}).output_dir, "123");
  EXPECT_EQ(with({"data.train=[a.jsonl, b.jsonl]"}).data.train, (Sources{{"a.jsonl"}, {"b.jsonl"}}));
  EXPECT_EQ(std::get<Texts>(with({"lora.target_modules=[q,v]"}).lora->target_modules), (Texts{"q", "v"}));
  EXPECT_EQ(std::get<std::string>(with({"lora.target_modules=[qv]_proj"}).lora->target_modules), "[qv]_proj");
}

TEST_F(LoadConfig, LoraIsOnWhenItIsMentioned) {
  EXPECT_TRUE(load("lora: {}").lora);
  EXPECT_TRUE(with({"lora={}"}).lora);
  EXPECT_EQ(with({"lora.r=64"}).lora->r, 64);
  EXPECT_EQ(with({"lora={r: 4, lora_alpha: 8}"}).lora->lora_alpha, 8);
  EXPECT_FALSE(load("lora: null").lora);
  EXPECT_FALSE(load("lora: {r: 4}", {"lora=null"}).lora);
}

TEST_F(LoadConfig, NullGivesAnOptionalKeyItsDefault) {
  EXPECT_FALSE(load("training: {dropout: 0.1}", {"training.dropout=null"}).training.dropout);
  EXPECT_TRUE(load("data: {eval: x}", {"data.eval=null"}).data.eval.empty());
}

TEST_F(LoadConfig, ExtendsOtherFilesRelativeToItself) {
  write("base.yaml", "training: {batch_size: 2, eval_steps: 7}\nlora: {r: 4}\nseed: 1\n");
  write("other.yaml", "seed: 2\n");
  const auto file =
      write("sub/mine.yaml",
            "extends: [../base, ../other.yaml]\ntraining: {batch_size: 3}\nlora: {lora_alpha: 1}\n");
  const Config config = load_config(file, {});
  EXPECT_EQ(config.training.batch_size, 3);
  EXPECT_EQ(config.training.eval_steps, 7);
  EXPECT_EQ(config.seed, 2);
  EXPECT_EQ(config.lora->r, 4);
  EXPECT_EQ(config.lora->lora_alpha, 1);
  EXPECT_FALSE(load("extends: base\nlora: null\n").lora);
}

TEST_F(LoadConfig, TwoFilesMayExtendTheSame) {
  write("base.yaml", "seed: 9\n");
  write("a.yaml", "extends: base\n");
  write("b.yaml", "extends: base\n");
  EXPECT_EQ(load("extends: [a, b]\n").seed, 9);
}

TEST_F(LoadConfig, ALaterAlternativeTakesBackTheEarlier) {
  const std::string preset =
      "training: {batch_size: 2, gradient_accumulation_steps: 4}\noptimizer: {warmup_steps: 10}\n";
  EXPECT_EQ(load(preset).effective_batch_size(), 8);
  const Config config = load(preset, {"effective_batch_size=32", "warmup_ratio=0.1"});
  EXPECT_EQ(config.effective_batch_size(), 32);
  EXPECT_FALSE(config.training.gradient_accumulation_steps);
  EXPECT_EQ(config.optimizer.warmup_steps, 0);
}

TEST_F(LoadConfig, KeysThatMayHaveChangedMayBeBareNames) {
  const Config config =
      load_config(std::nullopt, {"resume_changed=[seed, effective_batch_size, data.train]"});
  EXPECT_EQ(config.resume_changed,
            (std::vector<std::string>{"seed", "training.effective_batch_size", "data.train"}));
}

TEST_F(LoadConfig, ATildeInAPathIsTheHomeDirectory) {
  setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(load("model: {path: ~/t5}").model.path, "/home/someone/t5");
  EXPECT_EQ(with({"data.train=~/a.jsonl"}).data.train, Sources{{"/home/someone/a.jsonl"}});
  EXPECT_EQ(with({"data.input=~/x"}).data.input, "~/x");
}

TEST_F(LoadConfig, KnowsWhereAKeyWasSet) {
  const Config config = load("training:\n  batch_size: 2\n", {"seed=3"});
  EXPECT_EQ(config.origins.at("training.batch_size"), (directory_ / "test.yaml").string() + ":2:15");
  EXPECT_EQ(config.origins.at("seed"), "override 'seed=3'");
  EXPECT_FALSE(config.origins.contains("device"));
}

TEST_F(LoadConfig, DefaultsFollowTheOptimizer) {
  const Config t5 = with({"optimizer.name=adafactor"});
  EXPECT_EQ(t5.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(t5.optimizer.lr_scheduler_type, SchedulerType::constant_with_warmup);
  EXPECT_EQ(t5.training.max_grad_norm, 0);
  EXPECT_EQ(t5.optimizer.eps, std::pair(1e-30, 1e-3));
  EXPECT_EQ(t5.optimizer.decay_rate, -0.8);
  EXPECT_EQ(t5.optimizer.clip_threshold, 1);
  EXPECT_FALSE(t5.optimizer.beta1 || t5.optimizer.scale_parameter || t5.optimizer.relative_step);
  EXPECT_EQ(with({}).optimizer.learning_rate, 1e-5);
  EXPECT_EQ(with({}).training.max_grad_norm, 1);
}

TEST_F(LoadConfig, NullTakesBackWhatAFileSays) {
  const std::string file = "optimizer: {name: adafactor, learning_rate: 5.0e-4}\nseed: 3\n";
  const Config config = load(file, {"learning_rate=null", "seed=null"});
  EXPECT_EQ(config.optimizer.learning_rate, 1e-3) << "the optimizer's default";
  EXPECT_EQ(config.seed, Config{}.seed);
  EXPECT_FALSE(config.origins.contains("seed"));
  EXPECT_TRUE(load(file, {"relative_step=true", "learning_rate=null"}).optimizer.relative_step);
  EXPECT_EQ(load("memory: {offload: optimizer, offload_dir: /fast}\n",
                 {"memory.offload=null", "memory.offload_dir=null"})
                .memory.offload_dir,
            "");
}

TEST_F(LoadConfig, WhatIsSetWinsOverADefaultThatFollowsTheOptimizer) {
  const Config config = load(R"(
training: {max_grad_norm: 1}
optimizer: {learning_rate: 5.0e-5, name: adafactor, lr_scheduler_type: linear, beta1: 0.9, eps: [1e-20, 0.01]}
)");
  EXPECT_EQ(config.training.max_grad_norm, 1);
  EXPECT_EQ(config.optimizer.learning_rate, 5e-5);
  EXPECT_EQ(config.optimizer.lr_scheduler_type, SchedulerType::linear);
  EXPECT_EQ(config.optimizer.beta1, 0.9);
  EXPECT_EQ(config.optimizer.eps, std::pair(1e-20, 0.01));
}

TEST_F(LoadConfig, DataToEvaluateOnMeanEvaluation) {
  const auto strategy = [](const std::vector<std::string>& overrides) {
    return load_config(std::nullopt, overrides).training.eval_strategy;
  };
  EXPECT_EQ(strategy({}), IntervalStrategy::no);
  EXPECT_EQ(strategy({"eval_steps=20"}), IntervalStrategy::no);
  EXPECT_EQ(strategy({"data.eval=0.1"}), IntervalStrategy::epoch);
  EXPECT_EQ(strategy({"data.eval=0.1", "eval_steps=20"}), IntervalStrategy::steps);
  EXPECT_EQ(strategy({"data.eval=0.1", "eval_strategy=no"}), IntervalStrategy::no);
  EXPECT_EQ(strategy({"data.eval=0.1", "eval_strategy=auto"}), IntervalStrategy::epoch);
  EXPECT_EQ(strategy({"eval_strategy=auto"}), IntervalStrategy::no);
}

}  // namespace
}  // namespace trainer
