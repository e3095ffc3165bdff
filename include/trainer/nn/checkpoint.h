// Gradient checkpointing (recompute): a block keeps only its inputs and runs again in backward.
#pragma once

#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>

namespace trainer {

// A block takes the hidden states and, if it has one, a second input (T5's decoder: the encoder's states).
using BlockFunction =
    std::function<at::Tensor(const at::Tensor& hidden, const std::optional<at::Tensor>& other)>;

// Returns block(hidden, other), differentiable in both inputs and in every parameter that the block uses. The
// block must compute the same values when it runs again (dropout here is counter-based, so it does).
// `anchor`: see ForwardContext::anchor.
at::Tensor checkpoint(const at::Tensor& hidden, const std::optional<at::Tensor>& other,
                      const at::Tensor& anchor, BlockFunction block);

}  // namespace trainer
