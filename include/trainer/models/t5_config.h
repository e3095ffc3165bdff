// The facts of T5 and its kin.
#pragma once

#include <nlohmann/json.hpp>

#include "trainer/nn/activation.h"

namespace trainer {

struct T5Config {
  // From config.json. Throws FormatError: a key that is missing or of a wrong type, and what is not
  // supported, by name.
  explicit T5Config(const nlohmann::json& config);

  int64_t vocab_size, d_model, d_kv, d_ff, num_heads, encoder_layers, decoder_layers, num_buckets,
      max_distance, pad_id, decoder_start_id;
  double epsilon, dropout;
  bool scale_outputs;        // the decoder's, by d_model^-0.5
  bool bias_in_every_block;  // UMT5; else the first block's serves all
  bool gated;                // wi_0 and wi_1 in place of wi
  Activation activation;
};

}  // namespace trainer
