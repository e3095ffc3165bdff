#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/nn/rotary.h"

namespace trainer {

RopeParameters rope_parameters(const nlohmann::json& config, int64_t head_dim) {
  RopeParameters out;
  out.rotary_dim = head_dim;
  out.theta = config_double(config, "rope_theta", out.theta);
  if (!config.contains("rope_scaling") || config["rope_scaling"].is_null()) return out;
  const nlohmann::json& scaling = config["rope_scaling"];
  const std::string type = config_string(scaling, "rope_type", "default");
  if (type == "default") return out;
  out.factor = config_double(scaling, "factor", 1);
  if (type == "linear") {
    out.type = RopeType::linear;
  } else if (type == "llama3") {
    out.type = RopeType::llama3;
    out.low_freq_factor = config_double(scaling, "low_freq_factor", out.low_freq_factor);
    out.high_freq_factor = config_double(scaling, "high_freq_factor", out.high_freq_factor);
    out.original_max_position_embeddings =
        config_double(scaling, "original_max_position_embeddings", out.original_max_position_embeddings);
  } else {
    throw FormatError(
        concat("config.json: rope type '", type, "' is not supported (supported: default, linear, llama3)"));
  }
  return out;
}

}  // namespace trainer
