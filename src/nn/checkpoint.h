// Gradient checkpointing (recompute): a block keeps only its inputs and runs again in backward.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trainer/weights/module.h"

namespace trainer {

class KeptInputs;

// A block takes the hidden states and, if it has one, a second input (T5's decoder: the encoder's states).
using BlockFunction =
    std::function<at::Tensor(const at::Tensor& hidden, const std::optional<at::Tensor>& other)>;

struct CheckpointedBlock {
  BlockFunction run;
  EnterBlock enter{};  // may be empty
  // Keeps `hidden`; null: it stays on the device. `other` always stays, because blocks share it.
  std::shared_ptr<KeptInputs> kept_inputs{};
};

// Returns block.run(hidden, other), differentiable in both inputs and in every parameter that the block uses.
// The block must compute the same values when it runs again (dropout here is counter-based, so it does).
// `anchor`: see ForwardContext::anchor.
at::Tensor checkpoint(const at::Tensor& hidden, const std::optional<at::Tensor>& other,
                      const at::Tensor& anchor, CheckpointedBlock block);

}  // namespace trainer
