// The fallback of packed_attention().
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/nn/attention.h"

namespace trainer {

// LibTorch's scaled dot product attention, one call per sequence: used if there is no kernel for packed rows.
at::Tensor attention_one_by_one(const AttentionInputs& inputs, const Sequences& sequences, int64_t window);

}  // namespace trainer
