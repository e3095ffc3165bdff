// packed_attention() on a GPU, for inputs that FlashAttention does not take.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/attention.h"

namespace trainer {

// LibTorch's scaled dot product attention, one call per sequence: used if there is no kernel for packed rows.
at::Tensor attention_one_by_one(const AttentionInputs& inputs, const Sequences& sequences, int64_t window);

// One call for sequences of this length, as if they were the rows of a batch; without a window.
at::Tensor attention_by_rows(const AttentionInputs& inputs, int64_t length);

}  // namespace trainer
