// Merged models, compared with PEFT's logits from the unmerged adapter.
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/export/export_model.h"
#include "trainer/formats/model_directory.h"

#include "models/golden.h"
#include "support/error_message.h"
#include "support/golden_directory.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

ExportReport merge_model(const fs::path& source, const fs::path& out, std::optional<Dtype> dtype) {
  return export_model({source, out, dtype});
}

class Merge : public ::testing::TestWithParam<std::string> {};

TEST_P(Merge, TheMergedModelGivesTheLogitsOfTheAdapter) {
  const Golden golden(GetParam());
  const TemporaryDirectory directory;
  const ExportReport report = merge_model(golden.directory / "adapter", directory / "merged", std::nullopt);
  EXPECT_GT(report.merged, 0);
  const auto merged = load_model(directory / "merged", {});
  const at::NoGradGuard no_grad;
  const at::Tensor logits =
      merged->head().logits(merged->supervised_states(golden.whole(), ForwardContext{}));
  EXPECT_LE(relative_error(logits, golden.expected("logits")), 1e-5);
}

TEST_P(Merge, Bf16IsRoundedOnce) {
  const fs::path adapter = golden_directory(GetParam()) / "adapter";
  const TemporaryDirectory directory;
  merge_model(adapter, directory / "wide", Dtype::f32);
  merge_model(adapter, directory / "half", Dtype::bf16);
  const ModelWeights wide = read_model_weights(directory / "wide"),
                     half = read_model_weights(directory / "half");
  ASSERT_EQ(wide.tensors.size(), half.tensors.size());
  for (const auto& [name, view] : half.tensors) {
    const at::Tensor rounded = mapped_tensor(view, half.mapping_of(name));
    const at::Tensor exact = mapped_tensor(wide.tensors.at(name), wide.mapping_of(name));
    EXPECT_TRUE(rounded.equal(exact.to(at::kBFloat16))) << name;
  }
  EXPECT_EQ(read_model_config(directory / "half")["torch_dtype"], "bfloat16");
}

INSTANTIATE_TEST_SUITE_P(Adapters, Merge,
                         ::testing::Values("t5_v1_0_lora", "t5_v1_1_lora_all", "qwen2_lora",
                                           "llama_lora_head", "llama_patterns", "qwen2_dora",
                                           "llama_dora_vocabulary", "phi3_lora", "phi3_dora"),
                         [](const auto& info) { return info.param; });

TEST(MergeErrors, ATakenDirectoryIsNotTouched) {
  const TemporaryDirectory directory;
  write_atomically(directory / "mine.txt", "x");
  EXPECT_TRUE(contains(error_message<ConfigError>([&] {
                         merge_model(golden_directory("llama_lora") / "adapter", directory.path(),
                                     std::nullopt);
                       }),
                       "already exists"));
  EXPECT_EQ(read_file(directory / "mine.txt"), "x");
}

TEST(MergeErrors, AnAdapterThatDoesNotFitIsNamedAndLeavesNothing) {
  const TemporaryDirectory directory;
  fs::copy(golden_directory("llama_lora") / "adapter", directory / "adapter");
  fs::copy(golden_directory("t5_v1_0") / "model", directory / "model");
  const std::string message = error_message<FormatError>(
      [&] { merge_model(directory / "adapter", directory / "merged", std::nullopt); });
  EXPECT_TRUE(contains(message, "self_attn.k_proj")) << message;
  EXPECT_FALSE(fs::exists(directory / "merged"));
  EXPECT_FALSE(fs::exists(directory / "merged.tmp"));
}

TEST(MergeErrors, TwoEmbeddingsOfAT5CannotBeMerged) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(contains(error_message<FormatError>([&] {
                         merge_model(golden_directory("t5_v1_1_vocabulary") / "adapter", directory / "merged",
                                     std::nullopt);
                       }),
                       "one embedding for both stacks"));
}

TEST(MergeErrors, ABiasNeedsOneInTheBase) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(contains(error_message<FormatError>([&] {
                         merge_model(golden_directory("qwen3_saved") / "adapter", directory / "merged",
                                     std::nullopt);
                       }),
                       "lora_B.bias"));
}

// A saved copy of a tied embedding is an embedding beside the head: the merged model has both.
TEST(MergeDirectory, AnAdapterThatUntiesTheHeadSaysSoInTheConfig) {
  const TemporaryDirectory directory;
  fs::copy(golden_directory("qwen3_saved") / "model", directory / "model");
  fs::create_directory(directory / "adapter");
  nlohmann::json config =
      nlohmann::json::parse(read_file(golden_directory("qwen3_saved") / "adapter/adapter_config.json"));
  config["lora_bias"] = false;
  write_atomically(directory / "adapter/adapter_config.json", config.dump());
  SafetensorsFile adapter = read_adapter_weights(golden_directory("qwen3_saved") / "adapter");
  std::erase_if(adapter.tensors, [](const auto& item) { return item.first.ends_with("lora_B.bias"); });
  write_adapter_weights(directory / "adapter", adapter.tensors);

  EXPECT_TRUE(merge_model(directory / "adapter", directory / "merged", std::nullopt).untied);
  EXPECT_EQ(read_model_config(directory / "merged")["tie_word_embeddings"], false);
  const ModelWeights merged = read_model_weights(directory / "merged"),
                     base = read_model_weights(directory / "model");
  const auto values = [](const ModelWeights& weights, const std::string& name) {
    return mapped_tensor(weights.tensors.at(name), weights.mapping_of(name));
  };
  EXPECT_TRUE(values(merged, "lm_head.weight").equal(values(base, "model.embed_tokens.weight")));
  EXPECT_FALSE(values(merged, "model.embed_tokens.weight").equal(values(base, "model.embed_tokens.weight")));
}

TEST(MergeDirectory, AModelIsCopiedInTheTypeAskedFor) {
  const TemporaryDirectory directory;
  const fs::path model = golden_directory("qwen2") / "model";
  merge_model(model, directory / "copy", std::nullopt);
  const ModelWeights copy = read_model_weights(directory / "copy"), original = read_model_weights(model);
  ASSERT_EQ(copy.tensors.size(), original.tensors.size());
  for (const auto& [name, view] : original.tensors) {
    EXPECT_TRUE(mapped_tensor(copy.tensors.at(name), copy.mapping_of(name))
                    .equal(mapped_tensor(view, original.mapping_of(name))))
        << name;
  }
}

}  // namespace
}  // namespace trainer
