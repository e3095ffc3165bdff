// The errors for files that do not fit, and how weights get into memory.
#include <fstream>

#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "models/copied_model.h"
#include "models/golden.h"
#include "support/error_message.h"
#include "support/golden_directory.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;

TEST(LoadModel, NamesAllTensorsThatDoNotFitInOneError) {
  CopiedModel copy("qwen2");
  copy.weights.tensors.erase("model.norm.weight");
  auto node = copy.weights.tensors.extract("model.layers.0.mlp.up_proj.weight");
  node.key() = "model.layers.0.mlp.upp_proj.weight";
  copy.weights.tensors.insert(std::move(node));
  TensorView& bias = copy.weights.tensors.at("model.layers.1.self_attn.q_proj.bias");
  bias.shape = {1, bias.shape[0]};
  copy.write_weights();
  const std::string message = copy.error();
  EXPECT_TRUE(contains(message, "missing: model.norm.weight [")) << message;
  EXPECT_TRUE(contains(message, "missing: model.layers.0.mlp.up_proj.weight [")) << message;
  EXPECT_TRUE(contains(message, "unexpected: model.layers.0.mlp.upp_proj.weight [")) << message;
  EXPECT_TRUE(contains(message, "misshapen: model.layers.1.self_attn.q_proj.bias: expected [")) << message;
}

TEST(LoadModel, IgnoresWhatIsKnownToBeSuperfluousAndSaysSo) {
  CopiedModel copy("t5_v1_0");
  const TensorView bias =
      copy.weights.tensors.at("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
  copy.weights.tensors["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = bias;
  copy.weights.tensors["encoder.embed_tokens.weight"] = copy.weights.tensors.at("shared.weight");
  copy.write_weights();
  LoadReport report;
  load_model(copy.directory.path(), {}, &report);
  EXPECT_EQ(report.ignored.size(), 2u) << join(report.ignored);
}

// What loading `golden` with this put into its config.json says.
std::string refusal(const std::string& golden, const nlohmann::json& changes) {
  const CopiedModel copy(golden);
  copy.change_config([&](nlohmann::json& config) {
    if (changes.contains("rope_scaling")) config.erase("rope_parameters");
    config.update(changes);
  });
  return copy.error();
}

TEST(LoadModel, RefusesByNameWhatItDoesNotKnow) {
  const std::vector<std::tuple<std::string, nlohmann::json, std::string>> cases{
      {"llama", {{"model_type", "made_up"}}, "'made_up' is not supported (supported: t5"},
      {"llama", {{"model_type", "mamba"}}, "Mamba: it has layers with a state"},
      {"llama", {{"rope_scaling", {{"rope_type", "proportional"}, {"factor", 2.0}}}}, "'proportional'"},
      {"phi3", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}, "'linear'"},
      {"phi3",
       {{"rope_scaling", {{"rope_type", "su"}, {"short_factor", {1, 1}}}}, {"partial_rotary_factor", 0.75}},
       "short_factor: must be a list of 3"},
      {"phi3_window",
       {{"rope_parameters", {{"rope_theta", 100}, {"partial_rotary_factor", 0.4}}}},
       "partial_rotary_factor 0.4, which rotates 3 of 8"},
      {"phi3", {{"resid_pdrop", 0.1}}, "resid_pdrop"},
      {"granite", {{"logits_scaling", 0}}, "logits_scaling: must be a number above 0"},
      {"llama", {{"rope_scaling", {{"rope_type", "yarn"}}}}, "factor: is missing"},
      {"llama",
       {{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 2.0}}}},
       "low_freq_factor: is missing"},
      {"qwen3",
       {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}, {"partial_rotary_factor", 0.5}},
       "partial_rotary_factor"},
      {"qwen2", {{"hidden_act", "xielu"}}, "hidden_act: activation 'xielu'"},
      {"t5_v1_1", {{"dense_act_fn", "xielu"}}, "dense_act_fn: activation 'xielu'"},
      {"qwen2", {{"layer_types", {"full_attention", "chunked_attention"}}}, "\"chunked_attention\""},
      {"qwen2", {{"layer_types", {"full_attention"}}}, "each of the 2 layers"},
      {"qwen2", {{"layer_types", {"full_attention", "sliding_attention"}}}, "without a window"},
      {"llama", {{"sliding_window", 16}}, "sliding_window"},
      {"mistral", {{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types"},
      {"llama", {{"model_type", "gemma3"}}, "text_config: must be an object"},
      {"llama", {{"model_type", "granitemoehybrid"}, {"num_local_experts", 0}}, "Mamba layers"},
      {"granite_hybrid", {{"num_local_experts", 8}}, "num_local_experts: 8"},
      {"glm4", {{"partial_rotary_factor", 0.3}, {"rope_parameters", nullptr}}, "partial_rotary_factor 0.3"},
      {"olmo3", {{"layer_types", {"sliding_attention"}}}, "each of the 2 layers"},
      {"llama", {{"rope_parameters", {{"full_attention", {{"rope_theta", 1e6}}}}}}, "for each type of layer"},
      {"gemma3", {{"use_bidirectional_attention", true}}, "use_bidirectional_attention"},
      {"gemma3", {{"sliding_window", nullptr}}, "without a window"},
      {"gemma4", {{"enable_moe_block", true}}, "enable_moe_block: true (experts, 26B-A4B)"},
      {"gemma4", {{"num_kv_shared_layers", 3}}, "num_kv_shared_layers"},
      {"gemma4", {{"num_kv_shared_layers", 2}}, "no earlier layer of the same type"},
      {"gemma4",
       {{"hidden_size_per_layer_input", 8}, {"vocab_size_per_layer_input", 8}},
       "vocab_size_per_layer_input below vocab_size"},
      {"gemma4", {{"use_bidirectional_attention", "all"}}, "use_bidirectional_attention: \"all\""},
      {"gemma4",
       {{"per_layer_config", {{"1", {{"intermediate_size", 8}}}}}},
       "per_layer_config: intermediate_size"},
      {"gemma4", {{"per_layer_config", {{"1", {{"head_dim", 8}}}}}}, "differ among layers of one type"},
      {"gemma4",
       {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}}}},
       "an entry for each type of layer"},
      {"gemma2", {{"query_pre_attn_scalar", 0}}, "query_pre_attn_scalar: must be a number above 0"},
      {"qwen3_5",
       {{"layer_types", {"full_attention", "sliding_attention"}}},
       "linear_attention or full_attention"},
      {"qwen3_5", {{"hidden_act", "gelu"}}, "hidden_act other than silu"},
      {"qwen3_5", {{"linear_num_value_heads", 3}}, "not a multiple of linear_num_key_heads"},
      {"qwen3_5", {{"model_type", "qwen3_next"}}, "Qwen3-Next: it has experts"},
      {"lfm2", {{"layer_types", {"conv", "linear_attention"}}}, "layer_types"},
      {"lfm2", {{"model_type", "lfm2_moe"}}, "LFM2 with experts"},
      {"qwen3_5", {{"model_type", "qwen3_5_moe_text"}}, "Qwen3.5 and 3.6 with experts"},
      {"qwen3", {{"attention_dropout", 0.1}}, "attention_dropout"},
      {"qwen3", {{"is_causal", false}}, "is_causal"},
      {"llama", {{"per_layer_config", {{"0", {{"num_attention_heads", 2}}}}}}, "per_layer_config"},
      {"llama", {{"pruned_heads", {{"0", {1}}}}}, "pruned_heads"},
      {"qwen2", {{"is_encoder_decoder", true}}, "is_encoder_decoder: true"},
      {"t5_v1_0", {{"tie_encoder_decoder", true}}, "tie_encoder_decoder"},
      {"llama", {{"architectures", {"LlamaForTokenClassification"}}}, "LlamaForTokenClassification"},
      {"t5_v1_1", {{"architectures", {"T5ForQuestionAnswering"}}}, "T5ForQuestionAnswering"},
  };
  for (const auto& [golden, changes, expected] : cases) {
    const std::string message = refusal(golden, changes);
    EXPECT_TRUE(contains(message, expected)) << changes << ": " << message;
    EXPECT_TRUE(contains(message, "config.json")) << message;
  }
}

// Logits of a golden with something put into its config.json.
at::Tensor logits(const std::string& golden, const nlohmann::json& changes) {
  const CopiedModel copy(golden);
  copy.change_config([&](nlohmann::json& config) { config.update(changes); });
  const auto model = load_model(copy.directory.path(), {});
  at::NoGradGuard no_grad;
  return model->head().logits(model->supervised_states(Golden(golden).whole(), ForwardContext{}));
}

TEST(LoadModel, KeysWithoutEffectInTransformersHaveNone) {
  for (const nlohmann::json& changes : std::vector<nlohmann::json>{
           {{"pretraining_tp", 4}}, {{"partial_rotary_factor", 0.5}}, {{"attention_dropout", nullptr}}}) {
    EXPECT_TRUE(logits("llama", changes).equal(logits("llama", nlohmann::json::object()))) << changes;
  }
}

// transformers, class Qwen3Config and MistralConfig: what holds where a file does not say it.
TEST(LoadModel, AKeyThatIsAbsentHasTheFamilysDefaultAndNullIsAValue) {
  const CopiedModel absent("qwen3");
  absent.change_config([](nlohmann::json& config) { config.erase("head_dim"); });
  EXPECT_TRUE(contains(absent.error(), "q_norm.weight: expected [128]")) << absent.error();
  const at::Tensor none = logits("mistral", {{"sliding_window", nullptr}});
  EXPECT_FALSE(none.equal(logits("mistral", nlohmann::json::object())));
  const CopiedModel copy("mistral");
  copy.change_config([](nlohmann::json& config) { config.erase("sliding_window"); });
  const auto model = load_model(copy.directory.path(), {});  // 4096: more than the texts are long
  at::NoGradGuard no_grad;
  const at::Tensor states = model->supervised_states(Golden("mistral").whole(), ForwardContext{});
  EXPECT_TRUE(model->head().logits(states).equal(none));
}

// The embedding's row of pad_token_id gets no gradient where it is looked up, as in torch.nn.Embedding.
TEST(LoadModel, AnEndTokenThatPadsTooIsNotLearntByTheEmbedding) {
  CopiedModel copy("llama");
  const int64_t id = Golden("llama").batch.samples[0].input_ids[0];
  copy.change_config([&](nlohmann::json& config) { config["pad_token_id"] = id; });
  const auto model = load_model(copy.directory.path(), {at::kCPU, at::kFloat, true});
  model->loss(Golden("llama").whole(), ForwardContext{}).loss.backward();
  model->for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (name != "model.embed_tokens.weight") return;
    EXPECT_EQ(parameter.value.tensor().grad()[id].abs().max().item<double>(), 0);
  });
}

TEST(LoadModel, FrozenWeightsOnTheCpuStayInTheFile) {
  CopiedModel copy("llama");
  LoadReport report;
  const auto model = load_model(copy.directory.path(), {at::kCPU, at::kFloat, false}, &report);
  EXPECT_EQ(report.mapped_bytes, report.bytes);
  EXPECT_EQ(report.converted_bytes, 0);
}

TEST(LoadModel, TrainedWeightsAreCopiesThatDoNotTouchTheFile) {
  CopiedModel copy("llama");
  {
    const auto model = load_model(copy.directory.path(), {at::kCPU, at::kFloat, true});
    at::NoGradGuard no_grad;
    model->for_each_parameter([](const std::string&, Parameter& p) { p.value.tensor().zero_(); });
  }
  const SafetensorsFile after = read_safetensors(copy.path("model.safetensors"));
  EXPECT_GT(mapped_tensor(after.tensors.at("lm_head.weight"), after.mapping).norm().item<double>(), 0);
}

TEST(LoadModel, AHeadEqualToTheEmbeddingIsTiedAndADifferentOneIsNot) {
  CopiedModel copy("t5_v1_0");
  copy.weights.tensors["lm_head.weight"] = copy.weights.tensors.at("shared.weight");
  copy.write_weights();
  EXPECT_EQ(load_model(copy.directory.path(), {})->tied_names().back(), "lm_head.weight");
  EXPECT_NE(Golden("t5_v1_1").model->tied_names().back(), "lm_head.weight");
}

TEST(LoadModel, ADecodersStoredHeadCountsWhereItDiffersAlthoughTheConfigTiesIt) {
  CopiedModel copy("qwen2");
  copy.weights.tensors["lm_head.weight"] = copy.weights.tensors.at("model.embed_tokens.weight");
  copy.write_weights();
  EXPECT_EQ(load_model(copy.directory.path(), {})->tied_names().back(), "lm_head.weight");
  copy.weights = read_safetensors(copy.path("model.safetensors"));
  copy.weights.tensors.at("lm_head.weight").data[0] ^= std::byte{1};
  copy.write_weights();
  EXPECT_NE(load_model(copy.directory.path(), {})->tied_names().back(), "lm_head.weight");
}

TEST(LoadModel, SizesThatAreNoneAreRefused) {
  CopiedModel copy("qwen2");
  copy.change_config([](nlohmann::json& config) { config["num_attention_heads"] = 0; });
  EXPECT_TRUE(contains(copy.error(), "num_attention_heads")) << copy.error();
}

TEST(LoadModel, Mt5NeverScalesItsOutput) {
  CopiedModel t5("t5_v1_0"), mt5("t5_v1_0");
  mt5.change_config([](nlohmann::json& config) {
    config["model_type"] = "mt5";
    config.erase("scale_decoder_outputs");
    config["tie_word_embeddings"] = true;
  });
  const Golden golden("t5_v1_0");
  const auto states = [&](const CopiedModel& copy) {
    at::NoGradGuard no_grad;
    return load_model(copy.directory.path(), {})->supervised_states(golden.whole(), ForwardContext{});
  };
  const double scale = std::pow(golden.model->config().at("d_model").get<double>(), -0.5);
  EXPECT_LE(relative_error(states(mt5) * scale, states(t5)), 1e-6);
}

TEST(LoadModel, SizesAndTokensThatNoModelHasAreRefusedBeforeAnythingIsMade) {
  const std::vector<std::tuple<std::string, nlohmann::json, std::string>> cases{
      {"llama", {{"num_attention_heads", 1LL << 31}}, "num_attention_heads"},
      {"llama", {{"num_hidden_layers", 1LL << 31}}, "num_hidden_layers"},
      {"llama", {{"vocab_size", 1LL << 31}}, "vocab_size"},
      {"llama",
       {{"hidden_size", 1 << 20}, {"intermediate_size", 1 << 22}, {"num_hidden_layers", 200}},
       "more than any model has"},
      {"llama", {{"pad_token_id", 1 << 20}}, "pad_token_id: 1048576 is outside the vocabulary"},
      {"llama", {{"eos_token_id", 1 << 20}}, "eos_token_id: 1048576 is outside the vocabulary"},
      {"t5_v1_1", {{"d_ff", 1LL << 31}}, "d_ff"},
      {"t5_v1_1", {{"num_layers", 1LL << 31}}, "num_layers"},
      {"t5_v1_1", {{"decoder_start_token_id", 1 << 20}}, "decoder_start_token_id: 1048576 is outside"},
      {"t5_v1_1", {{"pad_token_id", -1}}, "pad_token_id: must be a token"},
      {"t5_v1_1", {{"d_model", 1 << 20}, {"d_ff", 1 << 22}, {"num_layers", 100}}, "more than any model has"}};
  for (const auto& [golden, changes, expected] : cases) {
    const std::string message = refusal(golden, changes);
    EXPECT_TRUE(contains(message, expected)) << changes << ": " << message;
  }
}

TEST(LoadModel, WeightsOfWholeNumbersAreRefusedByName) {
  CopiedModel copy("llama");
  TensorView& norm = copy.weights.tensors.at("model.norm.weight");
  norm.dtype = norm.dtype == Dtype::f32 ? Dtype::i32 : Dtype::i16;
  copy.write_weights();
  EXPECT_TRUE(contains(copy.error(), "no floating point: model.norm.weight: is of type I")) << copy.error();
}

class Lora : public ::testing::Test {
 protected:
  std::string error(const LoraConfig& config, const std::string& golden = "qwen2") {
    const auto model = load_model(golden_directory(golden) / "model", {});
    return error_message<ConfigError>([&] { apply_lora(*model, config, 0, at::kCPU); });
  }
};

TEST_F(Lora, ATargetThatMatchesNothingListsWhatCouldBeMatched) {
  LoraConfig config;
  config.target_modules = std::vector<std::string>{"q_proj", "query"};
  const std::string message = error(config);
  EXPECT_TRUE(contains(message, "'query'") && contains(message, "k_proj") && contains(message, "gate_proj"))
      << message;
  config.target_modules = ".*query";
  EXPECT_TRUE(contains(error(config), "k_proj")) << error(config);
  config.target_modules = "(q_proj";
  EXPECT_TRUE(contains(error(config), "not a regular expression")) << error(config);
  config.target_modules = std::vector<std::string>{"input_layernorm"};
  EXPECT_TRUE(contains(error(config), "neither a linear layer")) << error(config);
  config.target_modules = std::vector<std::string>{"embed_tokens"};
  EXPECT_TRUE(contains(error(config), "tied to lm_head")) << error(config);
  config.target_modules = std::vector<std::string>{"q_proj"};
  config.rank_pattern = {{"k_proj", 4}};
  EXPECT_TRUE(contains(error(config), "'k_proj' matches no module that gets an adapter")) << error(config);
}

TEST_F(Lora, ASavedModuleThatIsTiedIsRefused) {
  LoraConfig config;
  config.modules_to_save = {"lm_head"};
  EXPECT_TRUE(contains(error(config), "tied")) << error(config);
  config.modules_to_save = {"embed_tokens"};
  EXPECT_TRUE(contains(error(config), "tied")) << error(config);
  config.modules_to_save = {"lm_haed"};
  EXPECT_TRUE(contains(error(config, "llama"), "did you mean 'lm_head'")) << error(config, "llama");
}

TEST_F(Lora, AnExpressionMatchesWholeNamesAndAllLinearLeavesOutTheHead) {
  const auto adapters = [](const std::variant<std::string, std::vector<std::string>>& targets) {
    const auto model = load_model(golden_directory("llama") / "model", {});
    LoraConfig config;
    config.target_modules = targets;
    apply_lora(*model, config, 0, at::kCPU);
    return adapter_tensors(*model).size() / 2;
  };
  EXPECT_EQ(adapters(R"(.*\.0\.self_attn\.(q|v)_proj)"), 2u);
  EXPECT_EQ(adapters("all-linear"), 14u);  // 7 in each of 2 layers
  EXPECT_EQ(adapters(std::vector<std::string>{"mlp.up_proj", "model.layers.1.self_attn.o_proj"}), 3u);
}

TEST_F(Lora, WithoutTargetsItIsOnQueriesAndValuesAsTheFileHasThem) {
  const auto adapters = [](const std::string& golden) {
    const auto model = load_model(golden_directory(golden) / "model", {});
    LoraConfig config;
    config.r = 8;
    config.target_modules = std::vector<std::string>{};
    apply_lora(*model, config, 0, at::kCPU);
    std::map<std::string, std::vector<int64_t>> shapes;
    for (const auto& [name, tensor] : adapter_tensors(*model)) shapes[name] = tensor.sizes().vec();
    return shapes;
  };
  const auto split = adapters("granite"), fused = adapters("phi3");
  EXPECT_EQ(split.size(), 8u);  // A and B on two modules in each of 2 layers
  EXPECT_TRUE(split.contains("model.layers.1.self_attn.v_proj.lora_B.weight"));
  EXPECT_EQ(fused.size(), 4u);
  EXPECT_EQ(fused.at("model.layers.1.self_attn.qkv_proj.lora_B.weight"), (std::vector<int64_t>{64, 8}));
}

TEST_F(Lora, StartsAsTheBaseModelAndFromTheSeed) {
  const auto start = [](uint64_t seed) {
    const auto model = load_model(golden_directory("llama") / "model", {});
    apply_lora(*model, LoraConfig{}, seed, at::kCPU);
    return adapter_tensors(*model);
  };
  const auto a = start(1), b = start(1), c = start(2);
  for (const auto& [name, tensor] : a) {
    EXPECT_TRUE(tensor.equal(b.at(name))) << name;
    const bool is_b = name.find("lora_B") != std::string::npos;
    EXPECT_EQ(tensor.abs().max().item<double>() == 0, is_b) << name;
    if (!is_b) {
      EXPECT_FALSE(tensor.equal(c.at(name))) << name;
      EXPECT_LE(tensor.abs().max().item<double>(), 1 / std::sqrt(static_cast<double>(tensor.size(1))));
    }
  }
}

}  // namespace
}  // namespace trainer
