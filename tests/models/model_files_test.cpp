// What a model's files may say in more than one way, and keys that are not known.
#include <fstream>

#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "models/copied_model.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;

at::Tensor logits_of(const CopiedModel& files) {
  const auto model = load_model(files.directory.path(), {});
  at::NoGradGuard no_grad;
  return model->head().logits(model->supervised_states(Golden(files.golden).whole(), ForwardContext{}));
}

// What loading writes to the log.
std::string said_by(const CopiedModel& copy) {
  testing::internal::CaptureStderr();
  load_model(copy.directory.path(), {});
  return testing::internal::GetCapturedStderr();
}

TEST(ModelFiles, AKeyThatTheModelDoesNotHaveIsAWarningOnce) {
  for (const char* golden : {"llama", "t5_v1_0", "gemma3", "phi3", "granite", "qwen3", "mistral", "umt5"})
    EXPECT_EQ(said_by(CopiedModel(golden)), "") << golden;
  const CopiedModel copy("llama");
  copy.change_config([](nlohmann::json& config) {
    config.update({{"residual_multiplier", 0.2}, {"task_specific_params", {{"a", 1}}}, {"use_mup", true}});
  });
  const std::string said = said_by(copy);
  EXPECT_TRUE(contains(said, "keys that model_type llama does not have are ignored")) << said;
  EXPECT_TRUE(contains(said, "residual_multiplier, use_mup")) << said;
  EXPECT_EQ(said_by(copy), "");
}

TEST(ModelFiles, ALeftoverQuantizationConfigBesidePlainWeightsIsOneLine) {
  for (const nlohmann::json& leftover :
       {nlohmann::json{{"quant_method", "gptq"}, {"bits", 4}},
        nlohmann::json{
            {"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}}}) {
    const CopiedModel copy("qwen2");
    copy.change_config([&](nlohmann::json& config) { config["quantization_config"] = leftover; });
    const std::string said = said_by(copy);
    EXPECT_TRUE(contains(said, "is a leftover: none of the weights is quantised")) << said;
    EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
    const auto model = load_model(copy.directory.path(), {at::kCPU, at::kFloat, /*train_all=*/true});
    EXPECT_FALSE(model->config().contains("quantization_config"));
  }
}

TEST(ModelFiles, WeightsThatAreQuantisedInAnotherWayAreRefusedByName) {
  CopiedModel copy("llama");
  std::vector<int32_t> packed(8);
  copy.weights.tensors["model.layers.0.mlp.up_proj.qweight"] = {
      Dtype::i32, {8}, reinterpret_cast<std::byte*>(packed.data()), packed.size() * sizeof(int32_t)};
  copy.write_weights();
  copy.change_config([](nlohmann::json& config) {
    config["quantization_config"] = {{"quant_method", "gptq"}};
  });
  EXPECT_TRUE(contains(copy.error(), "quant_method gptq is not supported")) << copy.error();
}

// safetensors' save_model() keeps one name of a tied tensor, the first of the alphabet.
TEST(ModelFiles, ATiedTensorMayStandUnderAnyOfItsNames) {
  for (const auto& [golden, name, alias] :
       {std::tuple("qwen2", "model.embed_tokens.weight", "lm_head.weight"),
        std::tuple("gemma3", "model.embed_tokens.weight", "lm_head.weight"),
        std::tuple("t5_v1_0", "shared.weight", "lm_head.weight"),
        std::tuple("t5_v1_0", "shared.weight", "decoder.embed_tokens.weight"),
        std::tuple("t5_v1_0", "shared.weight", "encoder.embed_tokens.weight")}) {
    const at::Tensor expected = logits_of(CopiedModel(golden));
    CopiedModel copy(golden);
    auto node = copy.weights.tensors.extract(name);
    node.key() = alias;
    copy.weights.tensors.insert(std::move(node));
    copy.write_weights();
    const auto model = load_model(copy.directory.path(), {});
    EXPECT_EQ(model->vocabulary().size(), 1u) << golden << " " << alias;
    at::NoGradGuard no_grad;
    const at::Tensor found =
        model->head().logits(model->supervised_states(Golden(golden).whole(), ForwardContext{}));
    EXPECT_TRUE(found.equal(expected)) << golden << " " << alias;
  }
}

TEST(ModelFiles, AnEmbeddingOfItsOwnIsMissedWhereOnlyTheHeadIsStored) {
  CopiedModel copy("llama");
  copy.weights.tensors.erase("model.embed_tokens.weight");
  copy.write_weights();
  copy.change_config([](nlohmann::json& config) { config.erase("tie_word_embeddings"); });
  EXPECT_TRUE(contains(copy.error(), "missing: model.embed_tokens.weight")) << copy.error();
}

// AutoModel.save_pretrained() writes the body alone, as that of Qwen3-Embedding: without "model.".
void save_as_bare_body(CopiedModel& copy) {
  std::map<std::string, TensorView> bare;
  for (const auto& [name, view] : copy.weights.tensors)
    bare[name.starts_with("model.") ? name.substr(6) : name] = view;
  copy.weights.tensors = std::move(bare);
  copy.write_weights();
}

TEST(ModelFiles, ABodyThatWasSavedAloneIsReadByItsConfig) {
  for (const char* golden : {"qwen2", "qwen3", "gemma3", "llama", "granite"}) {
    const at::Tensor expected = logits_of(CopiedModel(golden));
    CopiedModel copy(golden);
    save_as_bare_body(copy);  // beside the head's own tensor where there is one
    EXPECT_TRUE(logits_of(copy).equal(expected)) << golden;
  }
}

TEST(ModelFiles, ABodyWithoutAHeadCanScoreTextsButNotWriteThem) {
  CopiedModel copy("llama");
  copy.weights.tensors.erase("lm_head.weight");
  save_as_bare_body(copy);
  copy.change_config([](nlohmann::json& config) { config["tie_word_embeddings"] = false; });
  const std::string error = copy.error();
  EXPECT_TRUE(contains(error, "missing: lm_head.weight")) << error;
  EXPECT_TRUE(contains(error, "without its head")) << error;
  EXPECT_TRUE(contains(error, "objective.name classification, regression or reward")) << error;
  LoadOptions options;
  options.head = ScoreHeadSpec{};
  options.head->labels = {"no", "yes"};
  EXPECT_NO_THROW(load_model(copy.directory.path(), options));
}

TEST(ModelFiles, HeadsOfFurtherTokensAreLeftOut) {
  for (const char* golden : {"qwen3", "llama", "glm4"}) {
    const at::Tensor expected = logits_of(CopiedModel(golden));
    CopiedModel copy(golden);
    const TensorView norm = copy.weights.tensors.at("model.norm.weight");
    copy.weights.tensors["mtp.layers.0.input_layernorm.weight"] = norm;
    copy.weights.tensors["mtp.norm.weight"] = norm;
    copy.weights.tensors["model.mtp_layers.0.norm.weight"] = norm;
    copy.write_weights();
    EXPECT_TRUE(logits_of(copy).equal(expected)) << golden;
    LoadReport report;
    load_model(copy.directory.path(), {}, &report);
    EXPECT_EQ(report.ignored.size(), 3u) << golden << ": " << join(report.ignored);
  }
}

}  // namespace
}  // namespace trainer
