// How fast each pair of a head's dimensions turns, in radians a position. Held against transformers,
// modeling_rope_utils.py: with its operators, in its types, as positions times these are large angles in
// which the last bit counts.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/nn/rotary.h"

namespace trainer {

// fp32 [head_dim / 2] on the CPU. Type dynamic: of a sequence within max_position_embeddings.
at::Tensor rope_frequencies(const RopeParameters& parameters);

// Type dynamic, of a sequence of `length` > max_position_embeddings.
at::Tensor stretched_frequencies(const RopeParameters& parameters, int64_t length);

}  // namespace trainer
