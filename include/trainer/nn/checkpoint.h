// Activation checkpointing: a block that keeps only its inputs and runs again in backward.
#pragma once

#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>

namespace trainer {

// Of a block: the hidden states, and a second input for those that have one (T5's decoder: the encoder's
// states).
using BlockFunction =
    std::function<at::Tensor(const at::Tensor& hidden, const std::optional<at::Tensor>& other)>;

// block(hidden, other), differentiable in both and in every parameter the block uses. The block must compute
// the same when it runs again (dropout here is counter-based, so it does). `anchor`: ForwardContext::anchor.
at::Tensor checkpoint(const at::Tensor& hidden, const std::optional<at::Tensor>& other,
                      const at::Tensor& anchor, BlockFunction block);

}  // namespace trainer
