#include "trainer/models/registry.h"

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "formats/text_half.h"
#include "models/decoder_config.h"
#include "models/families.h"

namespace trainer {

std::unique_ptr<Model> make_t5(const nlohmann::json& config, bool separate_head);
std::unique_ptr<Model> make_t5gemma(const nlohmann::json& config, bool separate_head);

static constexpr const char* kT5Gemma2Embedding = "model.encoder.text_model.embed_tokens.weight";

static auto decoder(DecoderConfig (*family)(const nlohmann::json&)) {
  return [family](const nlohmann::json& config, bool separate_head) {
    DecoderConfig facts = family(config);
    if (config.contains(kWholeModelType)) facts.body = kTextHalf;
    return make_decoder(config, facts, separate_head);
  };
}

const std::vector<Architecture>& architectures() {
  static const std::vector<std::string> t5_extras{
      R"((transformer\.)?(encoder|decoder)\.embed_tokens\.weight)",
      R"((transformer\.)?decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight)",
      R"(lm_head\.weight)"};
  // Heads of further tokens (multi-token prediction), which Transformers leaves out, too.
  constexpr const char* kFurtherTokens = R"((model\.)?mtp[._].*)";
  // The vision tower, which Transformers leaves out of a text model, too.
  static const std::vector<std::string> qwen3_5_extras{R"(.*\.rotary_emb\.inv_freq)", R"(lm_head\.weight)",
                                                       kFurtherTokens, R"(model\.visual\..*)"};
  // Projections of keys and values that some files have in layers that use those of another layer.
  static const std::vector<std::string> gemma4_shared{R"(.*\.self_attn\.(k_proj|v_proj|k_norm)\..*)"};
  static const std::vector<std::string> decoder_extras{R"(.*\.rotary_emb\.inv_freq)", R"(lm_head\.weight)",
                                                       kFurtherTokens};
  static const std::vector<std::string> t5gemma_extras{R"(.*\.rotary_emb\..*)", R"(lm_head\.weight)"};
  // The decoder's copies of a tied embedding.
  static const std::vector<std::string> t5gemma2_extras{
      R"(.*\.rotary_emb\..*)", R"(lm_head\.weight)",
      R"(model\.decoder\.embed_tokens\.(weight|eoi_embedding))"};
  static const std::vector<Architecture> table{
      {"t5", make_t5, t5_extras, "shared.weight", {"wo"}, true, true},
      {"mt5", make_t5, t5_extras, "shared.weight", {"wo"}, true, true},
      {"umt5", make_t5, t5_extras, "shared.weight", {"wo"}, true, true},
      {"t5gemma", make_t5gemma, t5gemma_extras, "model.decoder.embed_tokens.weight", {}, false, true},
      {"t5gemma2", make_t5gemma, t5gemma2_extras, kT5Gemma2Embedding, {}, false, true},
      {"cwm", decoder(cwm_config), decoder_extras, "model.embed_tokens.weight"},
      {"ernie4_5", decoder(ernie4_5_config), decoder_extras, "model.embed_tokens.weight", {}, false, true},
      {"gemma", decoder(gemma_config), decoder_extras, "model.embed_tokens.weight", {}, false, true},
      {"gemma2", decoder(gemma2_config), decoder_extras, "model.embed_tokens.weight", {}, false, true},
      {"gemma3_text", decoder(gemma3_config), decoder_extras, "model.embed_tokens.weight", {}, false, true},
      {"gemma4_text",
       decoder(gemma4_config),
       decoder_extras,
       "model.embed_tokens.weight",
       {},
       false,
       true,
       {"layer_scalar"},
       gemma4_shared},
      {"gemma4_unified_text",
       decoder(gemma4_unified_config),
       decoder_extras,
       "model.embed_tokens.weight",
       {},
       false,
       true,
       {"layer_scalar"},
       gemma4_shared},
      {"glm", decoder(glm_config), decoder_extras, "model.embed_tokens.weight"},
      {"glm4", decoder(glm4_config), decoder_extras, "model.embed_tokens.weight"},
      {"granite", decoder(granite_config), decoder_extras, "model.embed_tokens.weight"},
      {"granitemoehybrid", decoder(granite_hybrid_config), decoder_extras, "model.embed_tokens.weight"},
      {"helium", decoder(helium_config), decoder_extras, "model.embed_tokens.weight"},
      {"internlm3", decoder(internlm3_config), decoder_extras, "model.embed_tokens.weight"},
      {"iquestcoder", decoder(iquestcoder_config), decoder_extras, "model.embed_tokens.weight"},
      {"lfm2", decoder(lfm2_config), decoder_extras, "model.embed_tokens.weight", {}, false, true},
      {"llama", decoder(llama_config), decoder_extras, "model.embed_tokens.weight"},
      {"ministral", decoder(ministral_config), decoder_extras, "model.embed_tokens.weight"},
      {"ministral3", decoder(ministral3_config), decoder_extras, "model.embed_tokens.weight"},
      {"mistral", decoder(mistral_config), decoder_extras, "model.embed_tokens.weight"},
      {"olmo2", decoder(olmo2_config), decoder_extras, "model.embed_tokens.weight"},
      {"olmo3", decoder(olmo3_config), decoder_extras, "model.embed_tokens.weight"},
      {"phi3", decoder(phi3_config), decoder_extras, "model.embed_tokens.weight"},
      {"qwen2", decoder(qwen2_config), decoder_extras, "model.embed_tokens.weight"},
      {"qwen2_vl_text", decoder(qwen2_vl_config), decoder_extras, "model.embed_tokens.weight"},
      {"qwen2_5_vl_text", decoder(qwen2_5_vl_config), decoder_extras, "model.embed_tokens.weight"},
      {"qwen3", decoder(qwen3_config), decoder_extras, "model.embed_tokens.weight"},
      {"qwen3_5_text", decoder(qwen3_5_config), qwen3_5_extras, "model.embed_tokens.weight"},
      {"qwen3_vl_text", decoder(qwen3_vl_config), decoder_extras, "model.embed_tokens.weight"},
      {"smollm3", decoder(smollm3_config), decoder_extras, "model.embed_tokens.weight", {}, false, true},
  };
  return table;
}

// The text halves of models of texts and images.
static const std::vector<Architecture>& text_halves() {
  static const std::vector<Architecture> table = [] {
    std::vector<Architecture> halves = architectures();
    for (Architecture& half : halves) {
      if (half.embedding != kT5Gemma2Embedding) half.embedding = concat(kTextHalf, ".embed_tokens.weight");
    }
    return halves;
  }();
  return table;
}

const Architecture& find_architecture(const nlohmann::json& config) {
  const std::string model_type = config.at("model_type").get<std::string>();
  std::vector<std::string> known;
  for (const Architecture& architecture :
       config.contains(kWholeModelType) ? text_halves() : architectures()) {
    if (architecture.model_type == model_type) return architecture;
    known.push_back(architecture.model_type);
  }
  const std::string reason = why_not_supported(config), what = "config.json: model_type '" + model_type + "'";
  throw of_family(
      ErrorCode::model_type,
      FormatError(reason.empty() ? concat(what, " is not supported (supported: ", join(known), ")")
                                 : concat(what, " is not supported: ", reason,
                                          " (`trainer models` lists what is supported)")));
}

}  // namespace trainer
