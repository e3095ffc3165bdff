// What a plan for a GPU counts, and that of a run with evaluations.
#include <filesystem>
#include <fstream>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/training/plan.h"
#include "trainer/training/solve_plan.h"

#include "support/temporary_directory.h"

namespace trainer {
namespace {

// A decoder with eight heads, two of keys.
void write_decoder(const std::filesystem::path& directory, int64_t vocabulary) {
  std::ofstream(directory / "config.json") << nlohmann::json{{"model_type", "qwen2"},
                                                             {"vocab_size", vocabulary},
                                                             {"hidden_size", 256},
                                                             {"intermediate_size", 640},
                                                             {"num_hidden_layers", 4},
                                                             {"num_attention_heads", 8},
                                                             {"num_key_value_heads", 2},
                                                             {"hidden_act", "silu"},
                                                             {"max_position_embeddings", 512},
                                                             {"rms_norm_eps", 1e-6},
                                                             {"rope_theta", 10000.0},
                                                             {"tie_word_embeddings", true}}
                                                  .dump();
}

MemoryPlan plan_of(const Config& config, c10::DeviceType device, at::ScalarType dtype,
                   int64_t vocabulary = 3000) {
  const test::TemporaryDirectory directory;
  write_decoder(directory.path(), vocabulary);
  PlanTarget target;
  target.device = device;
  target.dtype = dtype;
  return plan_memory(config, directory.path(), target);
}

// In fp32 it would be 8 x 4096 x 4096 x 4 bytes, 537 MB a layer.
TEST(GpuPlan, NoTypeKeepsAMatrixOfScores) {
  Config config;
  config.training.batch_size = 1;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    config.data.max_length = 2048;
    const int64_t half = plan_of(config, c10::kCUDA, dtype).peak();
    config.data.max_length = 4096;
    EXPECT_LT(plan_of(config, c10::kCUDA, dtype).peak(), 2 * half) << dtype;
  }
}

// Backward, FlashAttention's sum of the gradient of q has 128 more rows for each sample in a row: here 255 x
// 128 x 256 fp32 numbers, beside which the other tensors of 512 tokens are small, at another moment.
TEST(GpuPlan, CountsTheRoomOfManyShortSamplesInARow) {
  Config config;
  config.training.batch_size = 1;
  config.lora.emplace();
  config.training.deterministic = false;  // one such sum
  config.data.max_length = 512;
  const auto peak = [&](int64_t samples, at::ScalarType dtype = at::kBFloat16) {
    config.training.effective_batch_size = samples;
    return plan_of(config, c10::kCUDA, dtype).peak();
  };
  constexpr int64_t room = int64_t{255} * 128 * 256 * 4;
  EXPECT_GT(peak(512), peak(2) + room * 3 / 4);
  EXPECT_EQ(peak(512, at::kFloat), peak(2, at::kFloat)) << "padded in fp32";
  config.data.packing = false;
  EXPECT_EQ(peak(512), peak(2));
}

TEST(GpuPlan, CountsAnEvaluationInLargerMicroBatches) {
  Config config;
  config.training.batch_size = 1;
  config.training.eval_strategy = IntervalStrategy::steps;
  const auto peak = [&] { return plan_of(config, c10::kCPU, at::kFloat).peak(); };
  const int64_t without = peak();
  config.training.eval_batch_size = 1;
  EXPECT_LE(peak(), without);
  config.training.eval_batch_size = 512;
  EXPECT_GT(peak(), 2 * without);
}

TEST(GpuPlan, HasSmallerChunksOfLogitsWhereMoreIsRecomputed) {
  Config config;
  config.lora.emplace();
  config.training.batch_size = 8;
  config.data.max_length = 512;
  const auto loss = [&](const Recompute& recompute) {
    config.memory.gradient_checkpointing = recompute;
    return plan_of(config, c10::kCUDA, at::kBFloat16, 100'000).loss;
  };
  constexpr int64_t row = 100'000 * 4;
  EXPECT_GT(loss(false), 1000 * row);
  for (const Recompute& some : {Recompute::light(), Recompute::blocks(3)}) {
    EXPECT_GT(loss(some), 500 * row);
    EXPECT_LT(loss(some), 530 * row);
  }
  EXPECT_LT(loss(true), 350 * row);  // 128 MB are 335 rows
}

// The rule of memory.widen_once: what a run decides before its first step, from its plan alone.
TEST(GpuPlan, WidensOnceWhereThePlanFits) {
  const test::TemporaryDirectory directory;
  write_decoder(directory.path(), 3000);
  Config config;
  config.lora.emplace();
  config.training.batch_size = 1;
  config.data.max_length = 256;
  config.memory.gradient_checkpointing = true;
  PlanTarget target;
  target.device = c10::kCUDA;
  target.dtype = at::kBFloat16;
  const auto settled = [&](const Config& asked, int64_t room) {
    Config changed = asked;
    MemoryPlan plan = plan_memory(asked, directory.path(), target);
    const int64_t before = plan.total();
    widen_once_if_it_fits(changed, plan, directory.path(), target, before + room);
    EXPECT_EQ(plan.widen_once, changed.memory.widen_once);
    return std::pair(plan.widen_once, plan.total() - before);
  };
  EXPECT_FALSE(settled(config, int64_t{1} << 30).first) << "dense weights";
  config.model.quantize = "nf4";
  constexpr int64_t block = (2 * 256 * 256 + 2 * 64 * 256 + 3 * 640 * 256) * 2;  // in bf16
  const auto [widens, more] = settled(config, int64_t{1} << 30);
  EXPECT_TRUE(widens);
  EXPECT_GT(more, 0);
  EXPECT_LT(more, block * 11 / 10);
  EXPECT_TRUE(settled(config, more).first);
  EXPECT_FALSE(settled(config, more - 1).first);
  config.memory.gradient_checkpointing = Recompute::light();
  EXPECT_FALSE(settled(config, int64_t{1} << 30).first) << "no block runs twice";
  config.memory.gradient_checkpointing = true;
  target.device = c10::kCPU;
  EXPECT_FALSE(settled(config, int64_t{1} << 30).first) << "a CPU widens panel by panel";
}

// Kept for each token and layer of Qwen3-8B with adapters on all layers: the table in
// docs/dev/activations.md.
TEST(GpuPlan, KeepsWhatTheDocumentationSays) {
  const test::TemporaryDirectory directory;
  const auto kept = [&](int64_t layers, const Recompute& recompute, const char* type) {
    nlohmann::json qwen3{{"model_type", type},
                         {"vocab_size", 1024},
                         {"hidden_size", 4096},
                         {"intermediate_size", 12288},
                         {"num_attention_heads", 32},
                         {"num_key_value_heads", 8},
                         {"head_dim", 128},
                         {"hidden_act", "silu"},
                         {"max_position_embeddings", 4096},
                         {"rms_norm_eps", 1e-6},
                         {"rope_theta", 10000.0},
                         {"tie_word_embeddings", false},
                         {"num_hidden_layers", layers}};
    std::ofstream(directory.path() / "config.json") << qwen3.dump();
    Config config;
    config.lora.emplace();
    config.training.effective_batch_size = 2;
    config.training.batch_size = 2;
    config.data.max_length = 2048;
    config.memory.gradient_checkpointing = recompute;
    PlanTarget target;
    target.device = c10::kCUDA;
    target.dtype = at::kBFloat16;
    return static_cast<double>(plan_memory(config, directory.path(), target).activations);
  };
  const auto of_a_layer = [&](const Recompute& recompute, const char* type) {
    return (kept(6, recompute, type) - kept(4, recompute, type)) / (2 * 4096.0);
  };
  EXPECT_NEAR(of_a_layer(false, "qwen3"), 137'736, 1000);
  EXPECT_NEAR(of_a_layer(Recompute::light(), "qwen3"), 86'536, 1000);
  // Without norms of queries and keys: the rotated ones and values of their own, in place of all that are
  // raw.
  EXPECT_NEAR(of_a_layer(false, "llama"), 127'336, 1000);
  EXPECT_NEAR(of_a_layer(Recompute::light(), "llama"), 86'376, 1000);
}

}  // namespace
}  // namespace trainer
