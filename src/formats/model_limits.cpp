#include "formats/model_limits.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

namespace trainer {
namespace {

// No model has a larger size; larger values come from a damaged or made-up file.
constexpr int64_t kMostOfAnything = int64_t{1} << 31;
constexpr std::array<std::pair<std::string_view, int64_t>, 14> kMost{
    {{"vocab_size", 1 << 24},
     {"hidden_size", 1 << 20},
     {"intermediate_size", 1 << 22},
     {"num_hidden_layers", 1 << 8},
     {"num_attention_heads", 1 << 14},
     {"num_key_value_heads", 1 << 14},
     {"head_dim", 1 << 14},
     {"d_model", 1 << 20},
     {"d_kv", 1 << 14},
     {"d_ff", 1 << 22},
     {"num_heads", 1 << 14},
     {"num_layers", 1 << 7},
     {"num_decoder_layers", 1 << 7},
     {"relative_attention_num_buckets", 1 << 16}}};
constexpr double kMostParameters = 1e13;

}  // namespace

int64_t largest_size(const std::string& key) {
  const auto found = std::ranges::find(kMost, key, [](const auto& entry) { return entry.first; });
  return found == kMost.end() ? kMostOfAnything : found->second;
}

void check_token_ids(const nlohmann::json& config, int64_t vocab_size) {
  for (const char* key : {"pad_token_id", "decoder_start_token_id", "eos_token_id"}) {
    if (!config.contains(key) || config[key].is_null()) continue;
    const nlohmann::json& value = config[key];
    for (const nlohmann::json& item : value.is_array() ? value : nlohmann::json::array({value})) {
      const int64_t id = config_int(nlohmann::json::object({{key, item}}), key);
      if (id < vocab_size) continue;  // -1: none
      throw FormatError(
          concat("config.json: ", key, ": ", id, " is outside the vocabulary (vocab_size ", vocab_size, ")"));
    }
  }
}

void check_total_size(double parameters) {
  if (parameters <= kMostParameters) return;
  throw FormatError(concat("config.json: its sizes together give ", parameters,
                           " parameters, more than any model has; is the file damaged?"));
}

bool is_floating(Dtype dtype) {
  return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

}  // namespace trainer
