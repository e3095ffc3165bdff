// Attention whose scores are capped before the softmax (Gemma 2), which LibTorch's fused operators cannot do.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/attention.h"

namespace trainer {

struct ScoreCap {
  double soft_cap = 0.0;         // c: scores become c tanh(scores / c)
  int64_t window = 0;            // causal: positions a query sees, itself included; 0: all up to it
  std::vector<int64_t> lengths;  // tokens of each sequence packed in one row; empty: not packed
};

// Attention with capped scores; returns what attention() returns. `window` and `lengths` are for causal
// inputs. Works through the queries in chunks and recomputes the attention weights in backward, so the memory
// for scores does not grow with the square of the length; with a window, the time does not either. Uses
// LibTorch's operators on every device.
at::Tensor capped_attention(const AttentionInputs& inputs, const ScoreCap& cap);

}  // namespace trainer
