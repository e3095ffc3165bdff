// The copies of a block's weights in one buffer.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trainer/weights/weight.h"

namespace trainer {

// Returns the bytes that a weight's tensors take in a buffer.
int64_t bytes_in_buffer(const Weight& weight);

// Returns the part of the buffer (uint8 [n]) for this tensor, of its shape and type; moves the offset behind
// it.
at::Tensor place_in_buffer(const at::Tensor& buffer, const at::Tensor& tensor, int64_t& offset);

}  // namespace trainer
