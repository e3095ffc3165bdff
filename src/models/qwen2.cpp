// Qwen2 and Qwen2.5: biases on queries, keys and values. Tested against transformers, models/qwen2.
#include "models/decoder_config.h"

namespace trainer {

DecoderConfig qwen2_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(
      config, {{"num_key_value_heads", 32}, {"max_position_embeddings", 32768}, {"sliding_window", 4096}});
  DecoderConfig facts = read_decoder_config(c);
  facts.qkv_bias = true;
  read_qwen_windows(c, facts);
  return facts;
}

}  // namespace trainer
