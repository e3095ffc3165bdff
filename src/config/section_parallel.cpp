#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section parallel_section() {
  using P = ParallelConfig;
  return section(
      "parallel",
      "Training on several GPUs: one process for each, which together do the updates that one would do "
      "(docs/parallel.md).",
      {key(&P::gpus, "gpus", OnResume::may_change,
           "GPUs of this machine to train on. all: as many as it has; fewer with CUDA_VISIBLE_DEVICES. The "
           "same as the option --gpus. Under torchrun and srun, which start the processes themselves, it "
           "means nothing.")
           .at_least(1)
           .at_most(1024),
       key(&P::shard, "shard", OnResume::may_change,
           "What the GPUs divide among themselves besides the samples. none: nothing, each has the whole "
           "model and optimizer. optimizer: each keeps the optimizer's state, and fp32 copies of weights, of "
           "its part of the weights only, updates that part and sends it to the others (ZeRO-1). all: the "
           "matrices of the model's blocks, too; each GPU fetches a block before it runs, and drops it then "
           "(as ZeRO-3 and FSDP do); all blocks are recomputed in the backward pass. For models that are too "
           "large for one GPU. auto: optimizer for full fine-tuning; none for LoRA, whose state is small.")
           .refuses("full", "is not a value; write all"),
       key(&P::timeout, "timeout", OnResume::may_change,
           "How long the others wait for a process that does not answer before it counts as lost and the "
           "run ends.")
           .at_least(1)
           .at_most(1e6)
           .in("seconds")});
}

}  // namespace trainer::config
