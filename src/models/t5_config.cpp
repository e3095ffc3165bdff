#include "models/t5_config.h"

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

namespace trainer {

T5Config::T5Config(const nlohmann::json& c)
    : vocab_size(config_size(c, "vocab_size")),
      d_model(config_size(c, "d_model")),
      d_kv(config_size(c, "d_kv")),
      d_ff(config_size(c, "d_ff")),
      num_heads(config_size(c, "num_heads")),
      encoder_layers(config_size(c, "num_layers")),
      decoder_layers(config_size(c, "num_decoder_layers", encoder_layers)),
      num_buckets(config_size(c, "relative_attention_num_buckets", 32)),
      max_distance(config_size(c, "relative_attention_max_distance", 128)),
      pad_id(config_int(c, "pad_token_id", 0)),
      decoder_start_id(config_int(c, "decoder_start_token_id", pad_id)),
      epsilon(config_double(c, "layer_norm_epsilon", 1e-6)),
      dropout(config_double(c, "dropout_rate", 0.1)),
      // mT5 never scales, whatever its flags say
      scale_outputs(c.at("model_type") == "t5" &&
                    config_bool(c, "scale_decoder_outputs", config_bool(c, "tie_word_embeddings", true))) {
  std::string name = config_string(c, "feed_forward_proj", "relu");
  gated = name.starts_with("gated-");
  if (gated) name = name.substr(6);
  // "gated-gelu" has always meant the form with tanh; plain "gelu" the exact one
  if (gated && name == "gelu") name = "gelu_new";
  activation = activation_named(name, "feed_forward_proj");
}

}  // namespace trainer
