#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "nn/rotary.h"

namespace trainer {
namespace {

using nlohmann::json;

bool is_set(const json& object, const char* key) { return object.contains(key) && !object[key].is_null(); }

double needed(const json& scaling, const std::string& type, const char* key) {
  if (!is_set(scaling, key)) {
    throw FormatError(concat("config.json: rope_scaling (rope_parameters).", key, ": is missing; rope type '",
                             type, "' needs it"));
  }
  return config_double(scaling, key, 0);
}

// The length before stretching: a key next to rope_scaling takes precedence over one inside it.
int64_t original_length(const json& config, const json& scaling, const RopeParameters& p) {
  const char* key = "original_max_position_embeddings";
  return config_size(config, key, config_size(scaling, key, p.max_position_embeddings));
}

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void read_yarn(const json& config, const json& scaling, RopeParameters& p) {
  p.original_max_position_embeddings = original_length(config, scaling, p);
  if (scaling.contains("factor") && scaling["factor"].is_null()) {
    p.factor = static_cast<double>(p.max_position_embeddings) /
               static_cast<double>(p.original_max_position_embeddings);
  } else {
    p.factor = needed(scaling, "yarn", "factor");
  }
  const double mscale = config_double(scaling, "mscale", 0),
               all = config_double(scaling, "mscale_all_dim", 0);
  const double inferred = mscale != 0 && all != 0 ? yarn_scale(p.factor, mscale) / yarn_scale(p.factor, all)
                                                  : yarn_scale(p.factor, 1);
  p.attention_factor = config_double(scaling, "attention_factor", inferred);
  // 0 counts as missing, and null for `truncate` counts as false
  if (const double beta = config_double(scaling, "beta_fast", 0); beta != 0) p.beta_fast = beta;
  if (const double beta = config_double(scaling, "beta_slow", 0); beta != 0) p.beta_slow = beta;
  p.truncate = config_bool(scaling, "truncate", !scaling.contains("truncate"));
}

void read_llama3(const json& config, const json& scaling, RopeParameters& p) {
  p.original_max_position_embeddings = original_length(config, scaling, p);
  p.factor = needed(scaling, "llama3", "factor");
  p.low_freq_factor = needed(scaling, "llama3", "low_freq_factor");
  p.high_freq_factor = needed(scaling, "llama3", "high_freq_factor");
}

}  // namespace

RopeParameters rope_parameters(const json& config, int64_t head_dim) {
  RopeParameters p;
  p.head_dim = head_dim;
  p.theta = config_double(config, "rope_theta", p.theta);
  if (!is_set(config, "rope_scaling")) return p;
  const json& scaling = config["rope_scaling"];
  p.theta = config_double(scaling, "rope_theta", p.theta);
  const std::string type = config_string(scaling, "rope_type", "default");
  if (type == "default") return p;
  if (type != "linear") p.max_position_embeddings = config_size(config, "max_position_embeddings");
  if (type == "linear") {
    p.type = RopeType::linear;
    p.factor = needed(scaling, type, "factor");
  } else if (type == "dynamic") {
    p.type = RopeType::dynamic;
    p.factor = needed(scaling, type, "factor");
    if (head_dim <= 2) throw FormatError("config.json: rope type 'dynamic' needs a head_dim above 2");
  } else if (type == "yarn") {
    p.type = RopeType::yarn;
    read_yarn(config, scaling, p);
  } else if (type == "llama3") {
    p.type = RopeType::llama3;
    read_llama3(config, scaling, p);
  } else {
    throw FormatError(concat("config.json: rope type '", type,
                             "' is not supported (supported: default, linear, dynamic, yarn, llama3)"));
  }
  return p;
}

}  // namespace trainer
