// One adapter of a tied embedding and head, as PEFT 0.21 stores it with ensure_weight_tying: under the names
// of both, the head's matrices being those of the embedding, transposed and exchanged.
#include <algorithm>

#include <ATen/CPUGeneratorImpl.h>
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

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr int64_t kRank = 3;
constexpr double kScale = 2.0;  // lora_alpha 6

at::Tensor logits_of(const Model& model) {
  const at::NoGradGuard no_grad;
  return model.head().logits(model.supervised_states(Golden("qwen2").whole(), ForwardContext{}));
}

class TiedAdapter : public ::testing::Test {
 protected:
  TiedAdapter() {
    fs::copy(golden_directory("qwen2") / "model", directory_ / "model");
    const ModelWeights weights = read_model_weights(directory_ / "model");
    const at::Tensor table = mapped_tensor(weights.tensors.at(kEmbedding), weights.mapping_of(kEmbedding));
    const auto random = [&](std::vector<int64_t> shape, uint64_t seed) {
      return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed)).mul(0.1);
    };
    a_ = random({kRank, table.size(0)}, 1);
    b_ = random({table.size(1), kRank}, 2);
    tensors_ = {{"model.embed_tokens.lora_embedding_A", a_},
                {"model.embed_tokens.lora_embedding_B", b_},
                {"lm_head.lora_A.weight", b_.t().contiguous()},
                {"lm_head.lora_B.weight", a_.t().contiguous()}};
    std::map<std::string, TensorView> views;
    for (const auto& [name, view] : weights.tensors) views[name] = view;
    const at::Tensor merged = table + kScale * a_.t().mm(b_.t());
    views[kEmbedding] = view_of(merged);
    fs::copy(directory_ / "model", directory_ / "expected");
    fs::remove(directory_ / "expected/model.safetensors");
    write_model_weights(directory_ / "expected", sources_of(views));
  }

  fs::path write(const nlohmann::json& targets) const {
    const fs::path adapter = directory_ / "adapter";
    fs::remove_all(adapter);
    fs::create_directory(adapter);
    write_atomically(adapter / "adapter_config.json",
                     nlohmann::json{{"peft_type", "LORA"},
                                    {"base_model_name_or_path", (directory_ / "model").string()},
                                    {"r", kRank},
                                    {"lora_alpha", 6},
                                    {"task_type", "CAUSAL_LM"},
                                    {"ensure_weight_tying", true},
                                    {"target_modules", targets}}
                         .dump());
    std::map<std::string, TensorView> views;
    for (const auto& [name, tensor] : tensors_) views[name] = view_of(tensor);
    write_adapter_weights(adapter, views);
    return adapter;
  }
  void expect_loaded(const fs::path& adapter) const {
    const auto model = load_model_or_adapter(adapter, {});
    EXPECT_EQ(model->vocabulary().size(), 1u);
    EXPECT_LE(relative_error(logits_of(*model), logits_of(*load_model(directory_ / "expected", {}))), 1e-5);
  }

  test::TemporaryDirectory directory_;
  at::Tensor a_, b_;
  std::map<std::string, at::Tensor> tensors_;  // of the adapter's file
};

TEST_F(TiedAdapter, HeadAndEmbeddingHaveTheSameMatrix) {
  expect_loaded(write({"model.embed_tokens"}));
  expect_loaded(write({"embed_tokens", "model.embed_tokens"}));
  expect_loaded(write("(?:.*lm_head|^model\\.embed_tokens$)"));
}

// Older files that name the head only, or store one of the two.
TEST_F(TiedAdapter, OneOfTheTwoIsEnough) {
  tensors_.erase("lm_head.lora_A.weight");
  tensors_.erase("lm_head.lora_B.weight");
  expect_loaded(write({"embed_tokens"}));
  tensors_ = {{"lm_head.lora_A.weight", b_.t().contiguous()}, {"lm_head.lora_B.weight", a_.t().contiguous()}};
  expect_loaded(write({"lm_head"}));
}

TEST_F(TiedAdapter, AMergedModelStaysTied) {
  for (const bool head_only : {false, true}) {
    if (head_only) std::erase_if(tensors_, [](const auto& item) { return item.first.starts_with("model."); });
    const fs::path out = directory_ / (head_only ? "of_head" : "of_both");
    EXPECT_FALSE(
        export_model({write(head_only ? nlohmann::json{"lm_head"} : nlohmann::json{"embed_tokens"}), out})
            .untied);
    EXPECT_FALSE(read_model_weights(out).tensors.contains("lm_head.weight"));
    EXPECT_EQ(read_model_config(out)["tie_word_embeddings"], true);
    EXPECT_LE(
        relative_error(logits_of(*load_model(out, {})), logits_of(*load_model(directory_ / "expected", {}))),
        1e-5);
  }
}

TEST_F(TiedAdapter, TwoThatDifferAreRefusedByName) {
  tensors_.at("lm_head.lora_A.weight").add_(0.5);
  const fs::path adapter = write({"embed_tokens"});
  for (const std::string& message : {error_message<FormatError>([&] { load_model_or_adapter(adapter, {}); }),
                                     error_message<FormatError>([&] {
                                       export_model({adapter, directory_ / "out"});
                                     })}) {
    EXPECT_TRUE(contains(message, "lm_head.lora_A.weight")) << message;
    EXPECT_TRUE(contains(message, "ensure_weight_tying")) << message;
  }
}

// The gradient is that of both uses: checked against a small change of the matrices.
TEST_F(TiedAdapter, TrainedFurtherItStaysOneAndIsStoredUnderBothNames) {
  const auto model = load_model(directory_ / "model", {});
  LoraConfig config;
  config.adapter = write({"embed_tokens"});
  const AdapterConfig saved = apply_lora(*model, config, 0, at::kCPU);
  EXPECT_TRUE(saved.ensure_weight_tying);
  const auto loss = [&] { return model->loss(Golden("qwen2").whole(), ForwardContext{}).loss; };
  loss().backward();
  double expected = 0, step = 1e-2;
  std::map<std::string, at::Tensor> leaves;
  model->for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (parameter.trained()) leaves[name] = parameter.value.tensor();
  });
  ASSERT_EQ(leaves.size(), 2u);
  const at::NoGradGuard no_grad;
  for (auto& [name, leaf] : leaves) expected += leaf.grad().square().sum().item<double>();
  const auto moved = [&](double by) {
    for (auto& [name, leaf] : leaves) leaf.add_(leaf.grad(), by);
    const double value = loss().item<double>();
    for (auto& [name, leaf] : leaves) leaf.sub_(leaf.grad(), by);
    return value;
  };
  step = 1e-3 / std::sqrt(expected);
  EXPECT_NEAR((moved(step) - moved(-step)) / (2 * step), expected, 0.02 * expected);
  for (auto& [name, leaf] : leaves) leaf.add_(0.25);
  const std::map<std::string, at::Tensor> stored = adapter_tensors(*model);
  EXPECT_EQ(stored.size(), 4u);
  EXPECT_TRUE(stored.at("lm_head.lora_A.weight").equal(stored.at("model.embed_tokens.lora_embedding_B").t()));
  EXPECT_TRUE(stored.at("lm_head.lora_B.weight").equal(stored.at("model.embed_tokens.lora_embedding_A").t()));
}

TEST_F(TiedAdapter, DoraIsRefusedByName) {
  const fs::path adapter = write({"embed_tokens"});
  auto config = nlohmann::json::parse(read_file(adapter / "adapter_config.json"));
  config["use_dora"] = true;
  write_atomically(adapter / "adapter_config.json", config.dump());
  const std::string message = error_message<FormatError>([&] { load_model_or_adapter(adapter, {}); });
  EXPECT_TRUE(contains(message, "ensure_weight_tying")) << message;
  EXPECT_TRUE(contains(message, "use_dora")) << message;
}

TEST(AdapterBase, AnAdapterThatNamesNoBaseSaysSoAndTakesOne) {
  const test::TemporaryDirectory directory;
  for (const nlohmann::json& none : {nlohmann::json(nullptr), nlohmann::json("")}) {
    fs::remove_all(directory / "adapter");
    fs::copy(golden_directory("qwen2_lora") / "adapter", directory / "adapter");
    auto config = nlohmann::json::parse(read_file(directory / "adapter/adapter_config.json"));
    config["base_model_name_or_path"] = none;
    write_atomically(directory / "adapter/adapter_config.json", config.dump());
    const std::string message =
        error_message<FormatError>([&] { load_model_or_adapter(directory / "adapter", {}); });
    EXPECT_TRUE(contains(message, "does not name the base model of this adapter (base_model_name_or_path)"))
        << message;
    EXPECT_TRUE(contains(message, "--base DIR")) << message;
    const fs::path base = golden_directory("qwen2_lora") / "model";
    const auto expected = load_model_or_adapter(golden_directory("qwen2_lora") / "adapter", {});
    EXPECT_TRUE(logits_of(*load_model_or_adapter(directory / "adapter", {}, nullptr, base))
                    .equal(logits_of(*expected)));
    fs::remove_all(directory / "merged");
    ExportRequest request{directory / "adapter", directory / "merged"};
    request.base = base;
    EXPECT_GT(export_model(request).merged, 0);
    EXPECT_LE(relative_error(logits_of(*load_model(directory / "merged", {})), logits_of(*expected)), 1e-5);
    fs::remove_all(directory / "alone");
    request.out = directory / "alone";
    request.adapter_only = true;
    export_model(request);
    EXPECT_EQ(fs::path(read_adapter_config(directory / "alone").base_model_name_or_path),
              fs::canonical(base));
  }
  EXPECT_TRUE(contains(error_message<ConfigError>(
                           [&] { base_directory(golden_directory("qwen2") / "model", directory.path()); }),
                       "leave out --base"));
}

}  // namespace
}  // namespace trainer
