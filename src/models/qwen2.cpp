// Qwen2 and Qwen2.5: biases on queries, keys and values. Held against transformers, models/qwen2.
#include "models/decoder_config.h"

namespace trainer {

DecoderConfig qwen2_config(const nlohmann::json& config) {
  DecoderConfig facts = read_decoder_config(config);
  facts.qkv_bias = true;
  return facts;
}

}  // namespace trainer
