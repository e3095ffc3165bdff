// What differs in a memory plan for a GPU.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/training/plan.h"

#include "support/temporary_directory.h"

namespace trainer {
namespace {

TEST(PlanForAGpu, HasSmallerChunksOfLogitsWhereEveryBlockIsRecomputed) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory.path() / "config.json") << nlohmann::json{{"model_type", "qwen2"},
                                                                    {"vocab_size", 100'000},
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
  Config config;
  config.lora.emplace();
  config.training.batch_size = 8;
  config.data.max_length = 512;
  PlanTarget target;
  target.device = c10::kCUDA;
  target.dtype = at::kBFloat16;
  const auto loss = [&](int64_t blocks) {
    config.memory.gradient_checkpointing = Recompute::blocks(blocks);
    return plan_memory(config, directory.path(), target).loss;
  };
  constexpr int64_t row = 100'000 * 4;
  EXPECT_GT(loss(3), 1000 * row);
  EXPECT_LT(loss(4), 350 * row);  // 128 MB are 335 rows
}

}  // namespace
}  // namespace trainer
