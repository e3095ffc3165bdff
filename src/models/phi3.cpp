// Phi-3 and Phi-4 (Abdin et al. 2024): one layer for queries, keys and values, and one for gate and up; the
// mini models rotate a part of each head, or have LongRoPE. Tested against transformers, models/phi3.
#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

// The files of the first Phi-3 call LongRoPE "su" or "yarn".
static nlohmann::json with_rope_of_phi3(nlohmann::json c) {
  if (!c.contains("rope_scaling") || !c["rope_scaling"].is_object()) return c;
  const std::string type = config_string(c["rope_scaling"], "rope_type", "default");
  if (type == "su" || type == "yarn") {
    c["rope_scaling"]["rope_type"] = "longrope";
  } else if (type != "default" && type != "longrope") {
    throw FormatError(concat("config.json: rope type '", type,
                             "' is not supported for model_type phi3 (supported: default, longrope)"));
  }
  return c;
}

DecoderConfig phi3_config(const nlohmann::json& config) {
  const nlohmann::json c =
      with_rope_of_phi3(with_defaults(config, {{"max_position_embeddings", 4096},
                                               {"original_max_position_embeddings", 4096},
                                               {"pad_token_id", 32000},
                                               {"rms_norm_eps", 1e-5}}));
  if (config_double(c, "resid_pdrop", 0.0) != 0.0)
    throw FormatError("config.json: resid_pdrop other than 0 is not supported for model_type phi3");
  if (config_double(c, "embd_pdrop", 0.0) != 0.0)
    log::warning("config.json: embd_pdrop has no effect, as in Transformers");
  DecoderConfig facts = read_decoder_config(c, RotaryWidth::partial);
  facts.fused_qkv = "qkv_proj";
  facts.fused_gate_up = "gate_up_proj";
  read_sliding_window(c, facts);
  facts.sliding.assign(facts.sliding.size(), facts.sliding_window > 0);
  return facts;
}

}  // namespace trainer
