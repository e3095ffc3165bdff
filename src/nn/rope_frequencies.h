// How fast each pair of a head's dimensions turns, in radians per position. Tested against transformers,
// modeling_rope_utils.py. Uses the same operators and types, because positions times these frequencies are
// large angles in which the last bit counts.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/rotary.h"

namespace trainer {

// Returns fp32 [head_dim / 2] on the CPU. Type dynamic: for a sequence within max_position_embeddings.
at::Tensor rope_frequencies(const RopeParameters& parameters);

// The same for type dynamic and a sequence of `length` > max_position_embeddings.
at::Tensor stretched_frequencies(const RopeParameters& parameters, int64_t length);

}  // namespace trainer
