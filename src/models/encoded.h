// What an encoder hands to its decoder.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainer {

// States [B, S, D], and their dropout keys [B, S].
struct Encoded {
  at::Tensor states, rows;
};

}  // namespace trainer
