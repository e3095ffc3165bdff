#include "models/families.h"

#include <algorithm>
#include <array>
#include <map>

#include <ATen/core/Tensor.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/models/load_model.h"
#include "trainer/models/registry.h"

#include "base/text.h"
#include "formats/text_half.h"

namespace trainer {
namespace {

// Which models have the model_type, for people.
const std::map<std::string, std::string>& models_of() {
  static const std::map<std::string, std::string> names{
      {"cwm", "Code World Model"},
      {"ernie4_5", "ERNIE 4.5 0.3B (without experts)"},
      {"gemma", "Gemma 1, CodeGemma"},
      {"gemma2", "Gemma 2"},
      {"gemma3", "Gemma 3 4B, 12B, 27B, MedGemma"},
      {"gemma3_text", "Gemma 3 270M, 1B"},
      {"gemma4", "Gemma 4 E2B, E4B, 31B"},
      {"gemma4_text", "Gemma 4 E2B, E4B, 31B, saved as text only"},
      {"gemma4_unified", "Gemma 4 12B"},
      {"gemma4_unified_text", "Gemma 4 12B, saved as text only"},
      {"glm", "GLM-4 9B (2024)"},
      {"glm4", "GLM-4-0414 9B, 32B"},
      {"granite", "Granite 3"},
      {"granitemoehybrid", "Granite 4 350M, 1B, Micro (without Mamba layers and experts)"},
      {"helium", "Helium"},
      {"internlm3", "InternLM3"},
      {"iquestcoder", "IQuest-Coder"},
      {"lfm2", "LFM2, LFM2.5 350M to 2.6B"},
      {"llama", "Llama 2, 3, SmolLM, SmolLM2, DeepSeek-R1-Distill, Yi"},
      {"ministral", "Ministral 8B (2024)"},
      {"ministral3", "Ministral 3, saved as text only"},
      {"mistral", "Mistral 7B, Nemo, Small 3"},
      {"mistral3", "Mistral Small 3.1, 3.2, Ministral 3, Devstral, Magistral"},
      {"mt5", "mT5, mT0, Aya-101"},
      {"olmo2", "OLMo 2"},
      {"olmo3", "OLMo 3"},
      {"phi3", "Phi-3, Phi-4, Phi-4-mini"},
      {"qwen2", "Qwen2, Qwen2.5, QwQ, DeepSeek-R1-Distill"},
      {"qwen2_vl", "Qwen2-VL"},
      {"qwen2_5_vl", "Qwen2.5-VL"},
      {"qwen3", "Qwen3"},
      {"qwen3_5", "Qwen3.5, 3.6, 3.8 0.8B to 27B"},
      {"qwen3_5_text", "Qwen3.5, 3.6, 3.8, saved as text only"},
      {"qwen3_vl", "Qwen3-VL 2B to 32B"},
      {"smollm3", "SmolLM3"},
      {"t5", "T5, FLAN-T5, ByT5, MADLAD-400"},
      {"t5gemma", "T5Gemma 2B-2B, 9B-9B, 9B-2B, small to XL"},
      {"t5gemma2", "T5Gemma 2 270M-270M, 1B-1B, 4B-4B"},
      {"umt5", "UMT5"},
  };
  return names;
}

// What is known of other model_types. `near`: the family that is closest, if the differences are few.
struct OtherFamily {
  const char *model_type, *name, *near, *missing;
};

constexpr const char* kExperts = "it is a mixture of experts, and only dense models are supported";
constexpr const char* kState = "it has layers with a state (Mamba), which are not supported";
constexpr const char* kLayerNorm = "its norms are LayerNorm and not RMSNorm, with other blocks";

constexpr std::array kOthers{
    OtherFamily{"apertus", "Apertus", "llama", "its feed-forward has no gate and the activation xIELU"},
    OtherFamily{"arcee", "AFM", "llama", "its feed-forward has no gate"},
    OtherFamily{"bamba", "Bamba", "", kState},
    OtherFamily{"bart", "BART", "", "of encoder-decoders only T5's family is supported"},
    OtherFamily{"bert", "BERT", "", "it is an encoder, and only models that generate text are supported"},
    OtherFamily{"bloom", "BLOOM", "", "its attention has ALiBi, and its norms are LayerNorm"},
    OtherFamily{"cohere", "Command R", "llama",
                "attention and feed-forward run side by side on one LayerNorm"},
    OtherFamily{"cohere2", "Command A, Aya", "llama",
                "attention and feed-forward run side by side on one LayerNorm"},
    OtherFamily{"deepseek_v2", "DeepSeek-V2", "", "it has latent attention (MLA) and experts"},
    OtherFamily{"deepseek_v3", "DeepSeek-V3, R1", "",
                "it has latent attention (MLA) and experts; its distilled models are supported"},
    OtherFamily{"deepseek_v4", "DeepSeek-V4", "", "it has latent attention (MLA) and experts"},
    OtherFamily{"ernie4_5_moe", "ERNIE 4.5 with experts", "", kExperts},
    OtherFamily{"exaone4", "EXAONE 4", "olmo3", "its norms on queries and keys are those of each head"},
    OtherFamily{"falcon", "Falcon", "", kLayerNorm},
    OtherFamily{"falcon_h1", "Falcon H1", "", kState},
    OtherFamily{"falcon_mamba", "Falcon Mamba", "", kState},
    OtherFamily{"gemma3n", "Gemma 3n", "gemma3",
                "it has AltUp, Laurel blocks, embeddings for each layer and sparse activations"},
    OtherFamily{"gemma3n_text", "Gemma 3n", "gemma3_text",
                "it has AltUp, Laurel blocks, embeddings for each layer and sparse activations"},
    OtherFamily{"glm4_moe", "GLM-4.5, 4.6", "", kExperts},
    OtherFamily{"glm4_moe_lite", "GLM-4.7-Flash", "", "it has latent attention (MLA) and experts"},
    OtherFamily{"gpt2", "GPT-2", "", kLayerNorm},
    OtherFamily{"gpt_neox", "GPT-NeoX, Pythia", "", kLayerNorm},
    OtherFamily{"gpt_oss", "gpt-oss", "", "it has experts in MXFP4 and a learned sink in attention"},
    OtherFamily{"granitemoe", "Granite 3 with experts", "granite", kExperts},
    OtherFamily{"hunyuan_v1_dense", "Hunyuan", "qwen3",
                "its norms on queries and keys come after the rotary embedding"},
    OtherFamily{"hunyuan_v1_moe", "Hunyuan with experts", "", kExperts},
    OtherFamily{"jamba", "Jamba", "", kState},
    OtherFamily{"kimi_k25", "Kimi K2.5", "", "it has latent attention (MLA) and experts"},
    OtherFamily{"lfm2_moe", "LFM2 with experts", "lfm2", kExperts},
    OtherFamily{"llama4", "Llama 4", "", "it has experts and attention in chunks"},
    OtherFamily{"llama4_text", "Llama 4", "", "it has experts and attention in chunks"},
    OtherFamily{"llava", "LLaVA", "", "the text half of this kind of model is not read"},
    OtherFamily{
        "longt5", "LongT5, mLongT5", "t5",
        "its encoder attends to blocks and to summaries of them; T5 itself reads 8,192 tokens on a card of "
        "24 GB (configs/flan_t5_large_long_24gb.yaml)"},
    OtherFamily{"m2m_100", "M2M100, NLLB", "", "of encoder-decoders only T5's family is supported"},
    OtherFamily{"mamba", "Mamba", "", kState},
    OtherFamily{"mamba2", "Mamba 2", "", kState},
    OtherFamily{"marian", "Marian, Opus-MT", "", "of encoder-decoders only T5's family is supported"},
    OtherFamily{"mbart", "mBART", "", "of encoder-decoders only T5's family is supported"},
    OtherFamily{"mistral4", "Mistral Small 4", "", "it has latent attention (MLA) and experts"},
    OtherFamily{"mistral_large4", "Mistral Large 4", "", "it has latent attention (MLA) and experts"},
    OtherFamily{"mixtral", "Mixtral", "mistral", kExperts},
    OtherFamily{"mllama", "Llama 3.2 Vision", "", "its text half has layers that attend to images"},
    OtherFamily{"nemotron", "Nemotron", "", kLayerNorm},
    OtherFamily{"nemotron_h", "Nemotron H, Nano", "", kState},
    OtherFamily{"olmo", "OLMo 1", "llama", "its norms are LayerNorm without weights"},
    OtherFamily{"olmoe", "OLMoE", "olmo2", kExperts},
    OtherFamily{"opt", "OPT", "", kLayerNorm},
    OtherFamily{"pegasus", "PEGASUS", "", "of encoder-decoders only T5's family is supported"},
    OtherFamily{"phi", "Phi-1, Phi-2", "", kLayerNorm},
    OtherFamily{"phi4_multimodal", "Phi-4-multimodal", "phi3",
                "its layers have adapters for images and sound"},
    OtherFamily{"phimoe", "Phi-3.5-MoE", "", kExperts},
    OtherFamily{"qwen2_moe", "Qwen2 with experts", "qwen2", kExperts},
    OtherFamily{"qwen3_5_moe", "Qwen3.5 and 3.6 with experts", "", kExperts},
    OtherFamily{"qwen3_5_moe_text", "Qwen3.5 and 3.6 with experts", "", kExperts},
    OtherFamily{"qwen3_moe", "Qwen3 with experts", "qwen3", kExperts},
    OtherFamily{"qwen3_next", "Qwen3-Next", "",
                "it has experts beside Gated DeltaNet, and only dense models are supported"},
    OtherFamily{"qwen3_vl_moe", "Qwen3-VL with experts", "qwen3_vl", kExperts},
    OtherFamily{"seed_oss", "Seed-OSS", "qwen2", "its file sets dropout on attention and residuals"},
    OtherFamily{"stablelm", "StableLM", "", kLayerNorm},
    OtherFamily{"starcoder2", "StarCoder2", "", kLayerNorm},
    OtherFamily{"switch_transformers", "Switch Transformers", "t5", kExperts},
};

const OtherFamily* other_family(const std::string& model_type) {
  const auto found =
      std::ranges::find_if(kOthers, [&](const OtherFamily& other) { return other.model_type == model_type; });
  return found == kOthers.end() ? nullptr : &*found;
}

// What the keys of an unknown model's config.json tell; "": nothing.
std::string told_by_keys(const nlohmann::json& config) {
  const auto is_above = [&](const char* key, int64_t most) {
    return config.contains(key) && config[key].is_number_integer() && config[key].get<int64_t>() > most;
  };
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"})
    if (is_above(key, 1)) return concat(kExperts, " (", key, ": ", config[key].dump(), ")");
  for (const char* key : {"mamba_d_state", "ssm_cfg", "ssm_state_size", "state_size"})
    if (config.contains(key) && !config[key].is_null()) return concat(kState, " (", key, ")");
  if (is_above("kv_lora_rank", 0)) return "it has latent attention (MLA), which is not supported";
  if (config.contains("text_config") && config["text_config"].is_object())
    return told_by_keys(config["text_config"]);
  return "";
}

int64_t parameters_of(Model& model) {
  int64_t sum = 0;
  model.for_each_parameter([&](const std::string&, const Parameter& parameter) { sum += parameter.numel(); });
  return sum;
}

std::string type_of(const nlohmann::json& config) { return config.at("model_type").get<std::string>(); }

std::string known_text(const nlohmann::json& config, Model& model) {
  std::vector<std::string> parts;
  const bool is_half = config.contains(kWholeModelType);
  const std::string whole = is_half ? config[kWholeModelType].get<std::string>() : type_of(config);
  const auto names = models_of().find(whole);
  parts.push_back(
      concat("model_type ", whole, names == models_of().end() ? "" : concat(" (", names->second, ")")));
  if (is_half)
    parts.push_back(concat("its text half",
                           whole == type_of(config) ? "" : concat(", ", type_of(config), ","),
                           " is trained; results keep the rest as it is"));
  parts.push_back(concat(grouped(parameters_of(model)), " parameters"));
  parts.push_back(concat(model.num_blocks(), " layers"));
  if (!model.encoder_decoder())
    parts.push_back(concat("positions up to ", grouped(config_int(config, "max_position_embeddings", 0))));
  return join(parts, "; ");
}

std::vector<Family> all_families() {
  std::vector<Family> all;
  const auto is_whole = [](const std::string& type) {
    return std::ranges::find(whole_models(), type, &WholeModel::model_type) != whole_models().end();
  };
  for (const Architecture& architecture : architectures()) {
    if (is_whole(architecture.model_type)) continue;
    const auto names = models_of().find(architecture.model_type);
    if (names != models_of().end()) all.push_back({architecture.model_type, names->second, {}});
  }
  for (const WholeModel& whole : whole_models()) {
    const auto names = models_of().find(whole.model_type);
    all.push_back({whole.model_type, names == models_of().end() ? "" : names->second, whole.text_types});
  }
  std::ranges::sort(all, {}, &Family::model_type);
  return all;
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = all_families();
  return all;
}

std::string why_not_supported(const nlohmann::json& config) {
  if (const OtherFamily* other = other_family(type_of(config)))
    return concat(other->name, ": ", other->missing,
                  *other->near != '\0' ? concat("; ", other->near, " is the closest that is supported") : "");
  return told_by_keys(config);
}

ModelVerdict verdict_on(const std::filesystem::path& path) {
  const bool is_directory = std::filesystem::is_directory(path);
  const std::filesystem::path file = is_directory ? path / "config.json" : path;
  nlohmann::json config;
  try {
    config = read_model_config(is_directory ? path : file);
    find_architecture(config);
  } catch (const FormatError& error) {
    if (error.family() != ErrorCode::model_type) throw;
    const OtherFamily* other =
        config.is_object() && config.contains("model_type") ? other_family(type_of(config)) : nullptr;
    const bool is_near = other != nullptr && *other->near != '\0';
    return {is_near ? ModelVerdict::Kind::near : ModelVerdict::Kind::unsupported, error.what()};
  }
  try {
    const auto model = model_on_meta(file, at::kFloat, /*train_all=*/false);
    return {ModelVerdict::Kind::known, known_text(config, *model)};
  } catch (const FormatError& error) {
    return {ModelVerdict::Kind::near,
            concat("model_type ", type_of(config), " is supported, but: ", error.what())};
  }
}

}  // namespace trainer
