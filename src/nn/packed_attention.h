// What packed_attention() falls back to.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/nn/attention.h"

namespace trainer {

// LibTorch's scaled dot product attention, a call for each sequence: for whatever has no kernel for rows.
at::Tensor attention_one_by_one(const AttentionInputs& inputs, const Sequences& sequences, int64_t window);

}  // namespace trainer
