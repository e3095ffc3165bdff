// Gradient checkpointing (recompute): a block keeps only its inputs and runs again in backward.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/weights/module.h"

namespace trainer {

class KeptInputs;

// A block takes the hidden states and, if it has one, a second input (T5's decoder: the encoder's states).
using BlockFunction =
    std::function<at::Tensor(const at::Tensor& hidden, const std::optional<at::Tensor>& other)>;

// The same with several other inputs, which may be undefined, and several results.
using WideBlockFunction =
    std::function<std::vector<at::Tensor>(const at::Tensor& hidden, const std::vector<at::Tensor>& others)>;

template <class Run>
struct Checkpointed {
  Run run;
  EnterBlock enter{};  // may be empty
  // Keeps `hidden`; null: it stays on the device. `other` always stays, because blocks share it.
  std::shared_ptr<KeptInputs> kept_inputs{};
};
using CheckpointedBlock = Checkpointed<BlockFunction>;
using WideCheckpointedBlock = Checkpointed<WideBlockFunction>;

// Returns block.run(hidden, other), differentiable in both inputs and in every parameter that the block uses.
// The block must compute the same values when it runs again (dropout here is counter-based, so it does).
// `anchor`: see ForwardContext::anchor.
at::Tensor checkpoint(const at::Tensor& hidden, const std::optional<at::Tensor>& other,
                      const at::Tensor& anchor, CheckpointedBlock block);

// The same for a block with three other inputs.
std::vector<at::Tensor> checkpoint_wide(const at::Tensor& hidden, const std::vector<at::Tensor>& others,
                                        const at::Tensor& anchor, WideCheckpointedBlock block);

}  // namespace trainer
