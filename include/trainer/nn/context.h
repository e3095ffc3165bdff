// The inputs of a forward pass besides its batch.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

namespace trainer {

class AdapterPacks;
class KeptInputs;

struct ForwardContext {
  bool training = false;  // dropout on
  // In generation: the pass has few rows, which nothing records for gradients (nn/few_rows_linear.h).
  bool few_rows = false;
  int64_t recompute_blocks =
      0;  // number of blocks, from the first, that keep only their input and run again in backward
  // On a GPU, a recomputed block makes a frozen weight in NF4 or FP8 bf16 once for its second forward pass
  // and for the gradients. So the widened weights of one block are in memory together.
  bool widen_once = false;
  bool recomputed = false;  // the context of a recomputed block
  // What a quick operator makes of kept tensors (norms' outputs, gates, rotated heads) is made again in
  // backward instead of kept. Recomputed blocks keep it: there it lives for a short while only.
  bool light = false;
  int64_t attention_chunk_bytes = int64_t{256} << 20;  // on a GPU (nn/attention.h)
  // alpha: the embedded tokens of a sample get uniform noise of up to alpha / sqrt(tokens x hidden size),
  // which follows from its dropout key, too (NEFTune). Only while training.
  double embedding_noise = 0.0;
  bool free_order = false;  // on a GPU, attention may sum in another order every time
  // A one-element leaf that requires grad. It makes autograd enter a recomputed block whose inputs need no
  // gradient (LoRA on a frozen embedding).
  at::Tensor anchor;
  // Stores the inputs of recomputed blocks; null: they stay on the device.
  std::shared_ptr<KeptInputs> kept_inputs;

  // On a GPU, the packed adapters of an update (src/nn/adapter_packs.h); null: each pass packs its own.
  std::shared_ptr<AdapterPacks> packs;

  // Returns the context in which a recomputed block runs.
  ForwardContext in_recomputed_block() const {
    ForwardContext context = *this;
    context.light = false;
    context.recomputed = true;
    return context;
  }
};

}  // namespace trainer
