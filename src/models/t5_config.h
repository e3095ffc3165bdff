// The configuration of T5 and its relatives.
#pragma once

#include <nlohmann/json.hpp>

#include "ops/activation.h"

namespace trainer {

struct T5Config {
  // Reads it from config.json. Throws FormatError, with the key, if a key is missing, has the wrong type or
  // asks for something that is not supported.
  explicit T5Config(const nlohmann::json& config);

  int64_t vocab_size, d_model, d_kv, d_ff, num_heads, encoder_layers, decoder_layers, num_buckets,
      max_distance, pad_id, decoder_start_id;
  double epsilon, dropout;
  bool scale_outputs;        // the decoder's outputs are multiplied by d_model^-0.5
  bool bias_in_every_block;  // UMT5; otherwise all blocks use the first block's position bias
  bool gated;                // wi_0 and wi_1 instead of wi
  Activation activation;
};

}  // namespace trainer
