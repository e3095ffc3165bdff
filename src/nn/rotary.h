// Rotary position embedding (Su et al. 2021) in the rotate-half form of Llama and Qwen. The first
// dimensions of a head are rotated, all of them in most families.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include "nn/norm.h"
#include "nn/remade_heads.h"

namespace trainer {

// The rotary position embedding's settings in config.json, and the frequencies (radians per position of each
// pair of a head's dimensions) that follow from them. Tested against transformers, modeling_rope_utils.py.
enum class RopeType { standard, linear, dynamic, yarn, llama3, longrope, proportional };

// The settings of config.json. Each type uses only the fields that it needs.
struct RopeParameters {
  RopeType type = RopeType::standard;
  int64_t rotary_dim = 0;  // the first dimensions of a head, which are rotated
  double theta = 10000.0;
  double factor = 1.0;
  int64_t max_position_embeddings = 0;                   // dynamic
  int64_t original_max_position_embeddings = 0;          // yarn, llama3, longrope
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  bool truncate = true;                                  // yarn
  double attention_factor = 1.0;                         // yarn, longrope: on cos and sin
  std::vector<double> short_factor, long_factor;         // longrope: divisors, one for each pair
  double turned_share = 1.0;                             // proportional: of the pairs; the others stand still
};

// Reads them from a decoder's config.json as read_model_config() returns it: rope_theta, and rope_scaling of
// type default, linear, dynamic, yarn, llama3 or longrope. All but the first two need
// max_position_embeddings. Throws FormatError for any other type, with its name, and for a missing key that
// the type needs.
RopeParameters rope_parameters(const nlohmann::json& config, int64_t rotary_dim);

// Reads the type proportional (Gemma 4), which few families have, from the settings of one type of layer.
// Throws FormatError if they do not fit.
RopeParameters proportional_rope(const nlohmann::json& rope, int64_t rotary_dim, double theta);

// Returns the frequencies in radians per position, fp32 [rotary_dim / 2] on the CPU: of a sequence that is
// not long_for_rope(). They are computed with the same operators and types as in Transformers, because
// positions times these frequencies are large angles in which the last bit counts.
at::Tensor rope_frequencies(const RopeParameters& parameters);

// Returns whether a sequence of `length` has frequencies of its own. Type dynamic: beyond
// max_position_embeddings it is stretched by its length. longrope: beyond original_max_position_embeddings
// the long factors hold instead of the short ones. A sequence is judged by its own length (in Transformers by
// the longest of its batch), so that the result does not depend on the micro-batch split.
bool long_for_rope(const RopeParameters& parameters, int64_t length);

// Returns the frequencies of such a sequence, fp32 [rotary_dim / 2] on the CPU.
at::Tensor long_rope_frequencies(const RopeParameters& parameters, int64_t length);

struct AttentionHeads {
  at::Tensor q, k, v;  // [batch, heads, seq, head_dim]
};

class Rotary {
 public:
  explicit Rotary(const RopeParameters& parameters);

  // Broadcastable to [batch, heads, seq, rotary_dim / 2].
  struct Tables {
    at::Tensor cos, sin;
  };
  // Returns the tables for these positions, int64 [seq] or [batch, seq]; computed in fp32, cast to the type
  // of `options`. `lengths` are the current lengths of the batch's sequences, without padding. If the
  // positions are one row and there are several lengths, the sequences are packed in that row. A
  // sequence that is long for the embedding's type has frequencies of its own (long_for_rope).
  Tables tables(const at::Tensor& positions, const std::vector<int64_t>& lengths,
                const at::TensorOptions& options) const;

  // Returns the queries and keys rotated, [batch, heads, seq, head_dim], laid out in memory as [batch, seq,
  // heads, head_dim]; differentiable. q and k are [batch, seq, heads, head_dim], each with its own number of
  // heads; heads and positions may have any strides. With norms of size head_dim, each head is normalised
  // first; nullptr: no norms. On a GPU this is one kernel.
  static std::pair<at::Tensor, at::Tensor> apply(const at::Tensor& q, const at::Tensor& k,
                                                 const RmsNorm* q_norm, const RmsNorm* k_norm,
                                                 const Tables& tables);

  // The same for q, k and v that are columns of one matrix (ops/side_by_side.h), in training on a GPU: their
  // gradients are columns of one matrix, too, so that backward multiplies them together. Also returns v
  // [batch, heads, seq, head_dim]; without norms in memory of its own, because nothing else needs the matrix.
  static AttentionHeads apply_beside(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const RmsNorm* q_norm, const RmsNorm* k_norm, const Tables& tables);

  // Returns what makes `heads`, the result of apply() with norms, again from its arguments.
  static std::shared_ptr<RemadeHeads> remade(const QkPair& heads, const at::Tensor& q, const at::Tensor& k,
                                             const RmsNorm& q_norm, const RmsNorm& k_norm,
                                             const Tables& tables);

  // Returns whether the frequencies are the same whatever the lengths are.
  bool has_fixed_frequencies() const {
    return parameters_.type != RopeType::dynamic && parameters_.type != RopeType::longrope;
  }

  // Returns whether keys that were rotated in a shorter sequence are wrong at this `length`: type longrope,
  // when the long factors begin to hold. (Type dynamic keeps them, as Transformers does.)
  bool invalidates_keys(int64_t length) const {
    return parameters_.type == RopeType::longrope &&
           length == parameters_.original_max_position_embeddings + 1;
  }

 private:
  at::Tensor inverse_frequencies(const std::vector<int64_t>& lengths, bool in_one_row) const;

  RopeParameters parameters_;
  at::Tensor on_device(const at::Tensor& frequencies, at::Device device) const;
  at::Tensor inverse_frequencies_;  // fp32 [rotary_dim / 2], on the CPU
  mutable at::Tensor on_gpu_;       // the same on the GPU that was used last
};

}  // namespace trainer
