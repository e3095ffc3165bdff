// Attention whose scores are capped before the softmax (Gemma 2), which LibTorch's fused operators cannot do.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/nn/attention.h"

namespace trainer {

struct ScoreCap {
  double soft_cap = 0.0;         // c: scores become c tanh(scores / c)
  int64_t window = 0;            // causal: positions that a query sees, itself among them; 0: all before it
  std::vector<int64_t> lengths;  // of sequences that lie one behind the other in one row; empty: none do
};

// What attention() gives, with capped scores. `window` and `lengths` are for causal inputs. Works through the
// queries in chunks and makes the weights again in backward: memory for scores does not grow with the length
// squared, and with a window the work does not either. By LibTorch's operators on every device.
at::Tensor capped_attention(const AttentionInputs& inputs, const ScoreCap& cap);

}  // namespace trainer
