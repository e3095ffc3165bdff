// Attention that LibTorch's fused operators cannot do: scores that are capped before the softmax (Gemma 2),
// and on a GPU heads of more than 256 dimensions (Gemma 4).
#pragma once

#include <cstdint>
#include <vector>

#include "nn/attention.h"

namespace trainer {

struct ScoreCap {
  double soft_cap = 0.0;         // c: scores become c tanh(scores / c); 0: no cap
  int64_t window = 0;            // causal: positions a query sees, itself included; 0: all up to it
  std::vector<int64_t> lengths;  // tokens of each sequence packed in one row; empty: not packed
};

// Returns whether heads of this width are too wide for the fused operators where `q` lies.
bool is_too_wide_for_fused(const at::Tensor& q);

// Attention with capped scores; returns what attention() returns. `window` and `lengths` are for causal
// inputs. Works through the queries in chunks and recomputes the attention weights in backward, so the memory
// for scores does not grow with the square of the length; with a window, the time does not either. Uses
// LibTorch's operators on every device.
at::Tensor capped_attention(const AttentionInputs& inputs, const ScoreCap& cap);

}  // namespace trainer
