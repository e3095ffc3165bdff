// The text half of a model of texts and images, whatever names and settings its files have, and what is said
// of models that are not supported.
#include "formats/text_half.h"

#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/models/registry.h"

#include "models/copied_model.h"
#include "models/families.h"

namespace trainer {
namespace {

using test::contains;

at::Tensor logits_of_half(const CopiedModel& files) {
  const auto model = load_model(files.directory.path(), {});
  at::NoGradGuard no_grad;
  return model->head().logits(model->supervised_states(Golden(files.golden).whole(), ForwardContext{}));
}

// The golden with other prefixes in its file.
struct Renamed : CopiedModel {
  Renamed(const std::string& body, const std::string& head, const std::string& other)
      : CopiedModel("gemma3_whole") {
    std::map<std::string, TensorView> tensors;
    for (const auto& [name, view] : weights.tensors) {
      const StoredNames old{"language_model.model.", "language_model.lm_head."};
      const auto module = old.module_of(name);
      tensors[module ? StoredNames{body, head}.of(*module) : other + name] = view;
    }
    weights.tensors = tensors;
    write_weights();
  }
};

TEST(TextHalf, HasTheSameTensorsUnderAllNamesThatFilesGiveThem) {
  const at::Tensor expected = logits_of_half(CopiedModel("gemma3_whole"));
  EXPECT_TRUE(logits_of_half(Renamed("model.language_model.", "lm_head.", "model.")).equal(expected));
  EXPECT_TRUE(logits_of_half(Renamed("language_model.", "lm_head.", "")).equal(expected));
  EXPECT_TRUE(logits_of_half(Renamed("model.", "lm_head.", "")).equal(expected));
}

TEST(TextHalf, TheOtherHalfIsNotLoaded) {
  LoadReport report;
  const CopiedModel copy("gemma3_whole");
  const auto model = load_model(copy.directory.path(), {}, &report);
  const ModelWeights weights = read_model_weights(copy.directory.path());
  int64_t bytes = 0;
  for (const auto& [name, view] : weights.tensors) bytes += static_cast<int64_t>(view.nbytes);
  EXPECT_EQ(report.bytes, bytes);
  EXPECT_TRUE(report.ignored.empty());
  EXPECT_GT(weights.others.size(), 10u);
  EXPECT_LT(bytes, weights.total_bytes());
  for (const auto& [name, view] : weights.others)
    EXPECT_TRUE(name.starts_with("vision_tower.") || name.starts_with("multi_modal_projector.")) << name;
}

TEST(TextHalf, ATensorOfItsOwnThatIsMissingIsNamedAsInTheModule) {
  CopiedModel copy("gemma3_whole");
  copy.weights.tensors.erase("language_model.model.norm.weight");
  copy.write_weights();
  EXPECT_TRUE(contains(copy.error(), "missing: model.language_model.norm.weight [32]")) << copy.error();
}

// The files of the official models leave out what the class in Transformers has as its default.
TEST(TextHalf, SettingsThatAreAbsentAreThoseOfTheClass) {
  const CopiedModel copy("gemma3_whole");
  copy.change_config([](nlohmann::json& config) {
    for (const char* key : {"vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim"})
      config["text_config"].erase(key);
  });
  const nlohmann::json config = read_model_config(copy.directory.path());
  EXPECT_EQ(config["vocab_size"], 262208);
  EXPECT_EQ(config["model_type"], "gemma3_text");
  EXPECT_EQ(config["whole_model_type"], "gemma3");
  EXPECT_TRUE(contains(copy.error(), "q_proj.weight: expected [2048, 32]")) << copy.error();
}

TEST(TextHalf, ANewAdapterLeavesTheVisionTowerOutInPeftToo) {
  for (const auto& [excluded, expected] : std::vector<std::pair<ModuleNames, std::string>>{
           {std::vector<std::string>{}, R"((?!model\.language_model\.|lm_head$).*)"},
           {std::vector<std::string>{"layers.0.mlp.up_proj"},
            R"((?!model\.language_model\.|lm_head$).*|(.*\.)?layers\.0\.mlp\.up_proj)"},
           {std::string(".*up_proj"), R"((?!model\.language_model\.|lm_head$).*|.*up_proj)"}}) {
    const auto model = load_model(CopiedModel("gemma3_whole").directory.path(), {});
    LoraConfig lora;
    lora.target_modules = "all-linear";
    lora.exclude_modules = excluded;
    const AdapterConfig adapter = apply_lora(*model, lora, 0, at::kCPU);
    EXPECT_EQ(std::get<std::string>(adapter.exclude_modules), expected);
    const auto tensors = adapter_tensors(*model);
    EXPECT_TRUE(tensors.contains("model.language_model.layers.0.self_attn.q_proj.lora_A.weight"));
    const bool all = excluded == ModuleNames(std::vector<std::string>{});
    EXPECT_EQ(tensors.contains("model.language_model.layers.0.mlp.up_proj.lora_A.weight"), all);
  }
}

TEST(Families, EveryModelTypeHasANameForPeople) {
  const std::vector<Family>& all = families();
  for (const Architecture& architecture : architectures()) {
    const auto is_it = [&](const Family& family) {
      return family.model_type == architecture.model_type ||
             std::ranges::find(family.text_halves, architecture.model_type) != family.text_halves.end();
    };
    EXPECT_TRUE(std::ranges::any_of(all, is_it)) << architecture.model_type;
  }
  for (const Family& family : all) EXPECT_FALSE(family.models.empty()) << family.model_type;
}

ModelVerdict verdict_with(const std::string& golden, const nlohmann::json& changes) {
  const CopiedModel copy(golden);
  copy.change_config([&](nlohmann::json& config) { config.update(changes); });
  return verdict_on(copy.directory.path());
}

TEST(Families, SayWhatAModelIsFromItsConfigAlone) {
  const CopiedModel whole("gemma3_whole");
  std::filesystem::remove(whole.path("model.safetensors"));
  const ModelVerdict known = verdict_on(whole.directory.path());
  EXPECT_EQ(known.kind, ModelVerdict::Kind::known) << known.text;
  EXPECT_TRUE(contains(known.text, "model_type gemma3 (Gemma 3 4B")) << known.text;
  EXPECT_TRUE(contains(known.text, "its text half, gemma3_text, is trained")) << known.text;
  using Kind = ModelVerdict::Kind;
  const std::vector<std::tuple<Kind, nlohmann::json, std::string>> cases{
      {Kind::near, {{"rope_parameters", {{"rope_type", "new"}}}}, "model_type llama is supported, but"},
      {Kind::near, {{"model_type", "gemma3n"}}, "Gemma 3n: it has AltUp"},
      {Kind::near, {{"model_type", "longt5"}}, "LongT5, mLongT5: its encoder attends to blocks"},
      {Kind::unsupported, {{"model_type", "llama4"}}, "Llama 4: it has experts"},
      {Kind::unsupported, {{"model_type", "qwen3_next"}}, "Qwen3-Next: it has experts"},
      {Kind::unsupported, {{"model_type", "mistral4"}}, "Mistral Small 4"},
      {Kind::near, {{"model_type", "qwen3_moe"}}, "Qwen3 with experts: it is a mixture of experts"},
      {Kind::unsupported, {{"model_type", "made_up"}, {"num_experts", 8}}, "num_experts: 8"},
      {Kind::unsupported, {{"model_type", "made_up"}}, "'made_up' is not supported (supported: t5"},
  };
  for (const auto& [kind, changes, expected] : cases) {
    const ModelVerdict verdict = verdict_with("llama", changes);
    EXPECT_EQ(verdict.kind, kind) << verdict.text;
    EXPECT_TRUE(contains(verdict.text, expected)) << verdict.text;
  }
}

}  // namespace
}  // namespace trainer
