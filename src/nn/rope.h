// How fast each pair of a head's dimensions turns: the rotary position embedding's settings in config.json,
// and the frequencies that follow from them. Tested against transformers, modeling_rope_utils.py.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

namespace trainer {

enum class RopeType { standard, linear, dynamic, yarn, llama3, longrope };

// What config.json says about it. Each type uses only the fields that it needs.
struct RopeParameters {
  RopeType type = RopeType::standard;
  int64_t rotary_dim = 0;  // how many dimensions of a head are rotated: the first ones
  double theta = 10000.0;
  double factor = 1.0;
  int64_t max_position_embeddings = 0;                   // dynamic
  int64_t original_max_position_embeddings = 0;          // yarn, llama3, longrope
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  bool truncate = true;                                  // yarn
  double attention_factor = 1.0;                         // yarn, longrope: on cos and sin
  std::vector<double> short_factor, long_factor;         // longrope: divisors, one for each pair
};

// Reads them from a decoder's config.json as read_model_config() returns it: rope_theta, and rope_scaling of
// type default, linear, dynamic, yarn, llama3 or longrope. All but the first two need
// max_position_embeddings. Throws FormatError for any other type, with its name, and for a missing key that
// the type needs.
RopeParameters rope_parameters(const nlohmann::json& config, int64_t rotary_dim);

// Returns the frequencies in radians per position, fp32 [rotary_dim / 2] on the CPU: of a sequence that is
// not long_for_rope(). They are computed with the same operators and types as in Transformers, because
// positions times these frequencies are large angles in which the last bit counts.
at::Tensor rope_frequencies(const RopeParameters& parameters);

// Whether a sequence of `length` has frequencies of its own. Type dynamic: beyond max_position_embeddings it
// is stretched by its length. longrope: beyond original_max_position_embeddings the long factors hold instead
// of the short ones. Each sequence is judged by its own length, as if it were alone in its batch
// (Transformers takes the longest of the batch), so that the result does not depend on how a batch is split.
bool long_for_rope(const RopeParameters& parameters, int64_t length);

// The frequencies of a sequence for which that is so.
at::Tensor long_rope_frequencies(const RopeParameters& parameters, int64_t length);

}  // namespace trainer
