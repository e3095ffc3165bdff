// data.packing in whole runs: evaluation, recovery, replay, and what auto means.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/models/load_model.h"
#include "trainer/training/evaluate.h"
#include "trainer/training/predictions.h"
#include "trainer/training/trainer.h"

#include "data/fixture.h"
#include "models/golden.h"
#include "support/error_message.h"
#include "support/product_rows.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

Config packed_config(int64_t max_length) {
  Config config;
  config.data.packing = true;
  config.data.max_length = config.data.max_source_length = config.data.max_target_length = max_length;
  config.training.batch_size = 2;
  config.optimizer.learning_rate = 1e-3;
  config.recovery.grow_after = 0;
  return config;
}

class PackingTest : public DataTest {
 protected:
  static void SetUpTestSuite() {
    install_host_allocator();
    log::set_level(log::Level::error);
  }
  static void TearDownTestSuite() { log::set_level(log::Level::info); }
  void TearDown() override { fail_host_allocation(0); }
};

TEST_F(PackingTest, EvaluationGivesTheSameNumbers) {
  config_.data.kind = DataKind::text;
  config_.data.input = "text";
  std::string rows;
  for (int i = 1; i < 40; i++) {
    std::string text;
    for (int word = 0; word < i % 7 + 1; word++) text += " " + std::to_string((i * 13 + word * 5) % 90);
    rows += "{\"text\": \"" + text + "\"}\n";
  }
  const Dataset dataset = data(rows, /*encoder_decoder=*/false);
  const Golden golden("qwen2");
  Config config = packed_config(16);
  BatchBudget budget;
  const EvaluationResult packed = evaluate(*golden.model, dataset, config, at::kCPU, budget);
  config.data.packing = false;
  const EvaluationResult padded = evaluate(*golden.model, dataset, config, at::kCPU, budget);
  EXPECT_NEAR(packed.loss, padded.loss, 1e-6 * padded.loss);
  EXPECT_EQ(packed.terms, padded.terms);
  EXPECT_EQ(packed.supervised_tokens, padded.supervised_tokens);
  EXPECT_EQ(packed.samples, padded.samples);
}

TEST_F(PackingTest, ALackOfMemoryHalvesTheTokensOfARow) {
  const Golden golden("qwen2");  // 13, 12, 17, 23 and 9 tokens
  const Config config = packed_config(40);
  Trainer trainer(config, *golden.model, at::kCPU, 10);
  std::vector<Recovery> recoveries;
  trainer.on_recovery([&](const Recovery& recovery) { recoveries.push_back(recovery); });
  StepResult result = trainer.step(golden.batch);
  EXPECT_EQ(result.cuts, std::vector<int64_t>{5});
  EXPECT_EQ(result.packed_budget.tokens, 80);
  fail_host_allocation(60);
  result = trainer.step(golden.batch);
  EXPECT_EQ(result.retries, 1);
  EXPECT_EQ(result.cuts, (std::vector<int64_t>{2, 3}));  // 23 + 17, 13 + 12 + 9
  EXPECT_EQ(result.packed_budget.tokens, 40);
  ASSERT_EQ(recoveries.size(), 1u);
  EXPECT_EQ(recoveries[0].from_tokens, 74);
  EXPECT_EQ(recoveries[0].to_tokens, 40);
  EXPECT_TRUE(test::contains(recoveries[0].line(),
                             "the micro-batch of 5 samples with 74 tokens is split into smaller ones, of at "
                             "most 40 tokens"));
}

TEST_F(PackingTest, AReplayNeedsTheLayoutOfItsRun) {
  const Golden golden("qwen2");
  Config config = packed_config(40);
  Trainer trainer(config, *golden.model, at::kCPU, 10);
  const StepCuts padded{{5}, 0}, packed{{2, 3}, 0, {40}};
  EXPECT_EQ(trainer.step(golden.batch, &packed).cuts, packed.samples);
  EXPECT_THROW(trainer.step(golden.batch, &padded), ConfigError);
  config.data.packing = false;
  EXPECT_THROW(trainer.step(golden.batch, &packed), ConfigError);
}

// 5 samples; both budgets are halved, and a replay needs both.
TEST_F(PackingTest, AnEncoderDecoderHasABudgetOfSourcesAndOneOfTargets) {
  const Golden golden("t5_v1_1");
  int64_t sources = 0, targets = 0;
  for (const Sample& sample : golden.batch.samples) {
    sources += packed_tokens(sample);
    targets += packed_target_tokens(sample, true);
  }
  Config config = packed_config(0);
  config.data.max_source_length = (sources + 1) / 2;
  config.data.max_target_length = (targets + 1) / 2;
  Trainer trainer(config, *golden.model, at::kCPU, 10);
  std::vector<Recovery> recoveries;
  trainer.on_recovery([&](const Recovery& recovery) { recoveries.push_back(recovery); });
  StepResult result = trainer.step(golden.batch);
  EXPECT_EQ(result.cuts, std::vector<int64_t>{5});
  fail_host_allocation(60);
  result = trainer.step(golden.batch);
  EXPECT_EQ(result.retries, 1);
  EXPECT_EQ(result.packed_budget.tokens, config.data.max_source_length);
  EXPECT_EQ(result.packed_budget.target_tokens, config.data.max_target_length);
  EXPECT_GT(result.cuts.size(), 1u);
  ASSERT_EQ(recoveries.size(), 1u);
  EXPECT_EQ(recoveries[0].from_tokens, sources + targets);
  const StepCuts replay{result.cuts, 0, result.packed_budget};
  trainer.budgets() = {};
  EXPECT_EQ(trainer.step(golden.batch, &replay).cuts, result.cuts);
}

TEST_F(PackingTest, EvaluationOfAnEncoderDecoderGivesTheSameNumbers) {
  std::string rows;
  for (int i = 1; i < 40; i++) {
    std::string input, target;
    for (int word = 0; word < i % 7 + 1; word++) input += " " + std::to_string((i * 13 + word * 5) % 90);
    for (int word = 0; word < i % 4 + 1; word++) target += " " + std::to_string((i * 7 + word * 3) % 90);
    rows += "{\"prompt\": \"" + input + "\", \"completion\": \"" + target + "\"}\n";
  }
  const Dataset dataset = data(rows);
  const Golden golden("umt5");
  Config config = packed_config(16);
  BatchBudget budget;
  const EvaluationResult packed = evaluate(*golden.model, dataset, config, at::kCPU, budget);
  config.data.packing = false;
  const EvaluationResult padded = evaluate(*golden.model, dataset, config, at::kCPU, budget);
  EXPECT_NEAR(packed.loss, padded.loss, 1e-6 * padded.loss);
  EXPECT_EQ(packed.terms, padded.terms);
  EXPECT_EQ(packed.supervised_tokens, padded.supervised_tokens);
}

TEST_F(PackingTest, InputsThatAreAnsweredAreLaidOutAsTheKeySays) {
  std::string rows;
  for (int i = 0; i < 4; i++) {
    std::string input;
    for (int word = 0; word <= i * i; word++) input += " " + std::to_string(20 + word);
    rows += "{\"prompt\": \"" + input + "\", \"completion\": \"30\"}\n";
  }
  const Dataset dataset = data(rows);  // 2, 3, 6 and 11 tokens
  const Golden golden("t5_v1_1");
  Config config;
  config.evaluation.generation_batch_size = 4;
  config.evaluation.max_new_tokens = 1;
  const auto products = [&] {
    Predictor predictor(dataset, t5_, config, {}, /*max_samples=*/0);
    return rows_of_products([&] { predictor.predict(*golden.model, at::kCPU); });
  };
  const std::set<int64_t> packed{4, 22}, padded{4, 44};
  EXPECT_EQ(products(), packed);
  config.data.packing = false;
  EXPECT_EQ(products(), padded);
  config.data.packing = true;
  EXPECT_EQ(products(), packed);
}

// Whether data.packing: auto packs a model with heads of 32 on this device.
bool auto_packs(const nlohmann::json& type, at::ScalarType dtype, at::DeviceType device) {
  nlohmann::json json{{"vocab_size", 100},
                      {"hidden_size", 64},
                      {"intermediate_size", 64},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 2},
                      {"num_key_value_heads", 2},
                      {"hidden_act", "silu"},
                      {"rms_norm_eps", 1e-6},
                      {"rope_theta", 10000.0},
                      {"sliding_window", 64},
                      {"head_dim", 32},
                      {"d_model", 64},
                      {"d_kv", 32},
                      {"d_ff", 64},
                      {"num_layers", 2},
                      {"num_heads", 2},
                      {"model_type", type},
                      {"tie_word_embeddings", false},
                      {"max_position_embeddings", 64}};
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "config.json") << json.dump();
  Config config;
  settle_packing(config, *model_on_meta(directory.path(), dtype, /*train_all=*/true), device);
  return config.data.packs();
}

// On a GPU: where one kernel takes all samples of a row at once, FlashAttention's or that of T5.
TEST(AutomaticPacking, IsForTheCpuAndInBf16ForAGpu) {
  EXPECT_TRUE(auto_packs("t5", at::kFloat, at::kCPU));
  EXPECT_TRUE(auto_packs("qwen3", at::kFloat, at::kCPU));
  EXPECT_TRUE(auto_packs("t5", at::kBFloat16, at::kCUDA));
  EXPECT_FALSE(auto_packs("t5", at::kFloat, at::kCUDA));
  EXPECT_TRUE(auto_packs("qwen3", at::kBFloat16, at::kCUDA));
  EXPECT_FALSE(auto_packs("qwen3", at::kFloat, at::kCUDA));
  EXPECT_FALSE(auto_packs("gemma2", at::kBFloat16, at::kCUDA)) << "its scores are capped";
}

// Gemma 4's full layers have heads that are attended to sample by sample.
TEST(AutomaticPacking, OfAModelWithSeveralKindsOfLayersIsWhereAllOfThemTakeIt) {
  const auto packs = [](const std::string& card) {
    const test::TemporaryDirectory directory;
    std::filesystem::copy_file(std::filesystem::path(SOURCE_DIR) / "configs/models" / (card + ".json"),
                               directory / "config.json");
    Config config;
    settle_packing(config, *model_on_meta(directory.path(), at::kBFloat16, /*train_all=*/false), at::kCUDA);
    return config.data.packs();
  };
  EXPECT_FALSE(packs("gemma-4-12b"));
  EXPECT_TRUE(packs("gemma-3-4b-text"));
  EXPECT_TRUE(packs("qwen3.5-0.8b"));
}

TEST(AutomaticPacking, DoesNotChangeWhatIsAskedFor) {
  const Golden t5("t5_v1_1");
  for (const bool packing : {true, false}) {
    Config config;
    config.data.packing = packing;
    settle_packing(config, *t5.model, at::kCUDA);
    EXPECT_EQ(config.data.packs(), packing);
  }
}

}  // namespace
}  // namespace trainer
