#include "trainer/models/registry.h"

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "models/decoder_config.h"

namespace trainer {

std::unique_ptr<Model> make_t5(const nlohmann::json& config, bool separate_head);

static auto decoder(DecoderConfig (*family)(const nlohmann::json&)) {
  return [family](const nlohmann::json& config, bool separate_head) {
    return make_decoder(config, family(config), separate_head);
  };
}

static const std::vector<Architecture>& architectures() {
  static const std::vector<std::string> t5_extras{
      R"((encoder|decoder)\.embed_tokens\.weight)",
      R"(decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight)",
      R"(lm_head\.weight)"};
  // The head of further tokens, and the vision tower, which Transformers leaves out of a text model, too.
  static const std::vector<std::string> qwen3_5_extras{R"(.*\.rotary_emb\.inv_freq)", R"(lm_head\.weight)",
                                                       R"(mtp\..*)", R"(model\.visual\..*)"};
  static const std::vector<std::string> decoder_extras{R"(.*\.rotary_emb\.inv_freq)", R"(lm_head\.weight)"};
  static const std::vector<Architecture> table{
      {"t5", make_t5, t5_extras, "shared.weight", {"wo"}, true, true},
      {"mt5", make_t5, t5_extras, "shared.weight", {"wo"}, true, true},
      {"umt5", make_t5, t5_extras, "shared.weight", {"wo"}, true, true},
      {"gemma2", decoder(gemma2_config), decoder_extras, "model.embed_tokens.weight", {}, false, true},
      {"gemma3_text", decoder(gemma3_config), decoder_extras, "model.embed_tokens.weight", {}, false, true},
      {"granite", decoder(granite_config), decoder_extras, "model.embed_tokens.weight"},
      {"llama", decoder(llama_config), decoder_extras, "model.embed_tokens.weight"},
      {"mistral", decoder(mistral_config), decoder_extras, "model.embed_tokens.weight"},
      {"phi3", decoder(phi3_config), decoder_extras, "model.embed_tokens.weight"},
      {"qwen2", decoder(qwen2_config), decoder_extras, "model.embed_tokens.weight"},
      {"qwen3", decoder(qwen3_config), decoder_extras, "model.embed_tokens.weight"},
      {"qwen3_5_text", decoder(qwen3_5_config), qwen3_5_extras, "model.embed_tokens.weight"},
      {"smollm3", decoder(smollm3_config), decoder_extras, "model.embed_tokens.weight", {}, false, true},
  };
  return table;
}

const Architecture& find_architecture(const std::string& model_type) {
  std::vector<std::string> known;
  for (const Architecture& architecture : architectures()) {
    if (architecture.model_type == model_type) return architecture;
    known.push_back(architecture.model_type);
  }
  if (model_type == "gemma3") {
    throw of_family(
        ErrorCode::model_type,
        FormatError("config.json: model_type 'gemma3' is a model of images and text, which is not supported; "
                    "only its text model is, with model_type 'gemma3_text'"));
  }
  if (model_type == "qwen3_next" || model_type.starts_with("qwen3_5_moe")) {
    throw of_family(ErrorCode::model_type,
                    FormatError(concat("config.json: model_type '", model_type,
                                       "' has experts, which are not supported; the dense models of Qwen3.5, "
                                       "3.6 and 3.8 are (qwen3_5_text)")));
  }
  throw of_family(ErrorCode::model_type,
                  FormatError(concat("config.json: model_type '", model_type,
                                     "' is not supported (supported: ", join(known), ")")));
}

}  // namespace trainer
