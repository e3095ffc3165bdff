#include <utility>

#include "config/declare.h"

namespace trainer::config {

Section memory_section() {
  using M = MemoryConfig;
  return section(
      "memory", "Memory use, and what to trade for it.",
      {key(&M::gradient_checkpointing, "gradient_checkpointing", OnResume::may_change,
           "Recompute the inside of blocks in the backward pass instead of storing it. Takes about a third "
           "more time and saves most of the memory of activations; the result is the same. true: all blocks; "
           "light: only what is quick to compute (norms, gates, rotated heads), which saves a third of that "
           "memory for some 3 % of the time; a number: this many blocks, counted from the first, and the "
           "others light; false: nothing; fit: false, or where the memory plan says that this does not fit, "
           "the fastest that does (docs/memory.md); auto: the same, and the run ends if nothing fits.")
           .default_written("fit")
           .at_least(0)
           .at_most(100000),
       key(&M::rehearse, "rehearse", OnResume::may_change,
           "Before the first step, run the largest micro-batches that the data and the configuration allow, "
           "with an update that changes nothing. A run that does not fit then runs out of memory in the "
           "first minute. auto: true on a GPU; on the CPU, where it can take minutes, only if memory.limit "
           "is "
           "set."),
       key(&M::empty_cache_steps, "empty_cache_steps", OnResume::may_change,
           "Updates after which cached GPU memory is released, if it is far more than the run used "
           "meanwhile: "
           "a quarter, and at least 512 MiB. In evaluation: micro-batches. 0: never.")
           .at_least(0)
           .at_most(1e10)
           .in("steps")
           .idle_with("device", {"cpu"}),
       key(&M::limit, "limit", OnResume::may_change,
           "Most memory that the run may use on its device. A size (18GB, 16GiB, 900MB), or a share from 0 "
           "to 1 of what is free there at startup. Empty: 0.95 on a GPU, no limit on the CPU.")
           .matching("^(|[0-9]+(\\.[0-9]+)? ?[kMGT]i?B|0?\\.[0-9]+|1(\\.0*)?)$",
                     "a size such as 18GB or 16GiB, or a share from 0 to 1"),
       key(&M::offload, "offload", OnResume::may_change,
           "What lies outside the device's memory. A list of optimizer (the optimizer's state, and fp32 "
           "copies of weights), weights (those of the model's blocks) and activations (what blocks keep for "
           "the backward pass). On a GPU these lie in the host's memory, on the CPU in files in offload_dir. "
           "The result is the same, and steps take longer. auto: only what the memory plan needs to fit "
           "(docs/memory.md)."),
       key(&M::offload_dir, "offload_dir", OnResume::may_change,
           "Directory for the files of offload on the CPU. Best on a fast local disk. The files have no "
           "names, and are gone when the run ends. Empty: output_dir.")
           .path()
           .not_with("memory.offload", "[]"),
       key(&M::expandable_segments, "expandable_segments", OnResume::may_change,
           "Let the GPU memory that LibTorch has reserved grow in place. This loses less memory to "
           "fragmentation. This key and the next three make up PYTORCH_ALLOC_CONF, which LibTorch's GPU "
           "allocator reads. If the environment already sets it (or PYTORCH_CUDA_ALLOC_CONF), the "
           "environment wins.")
           .idle_with("device", {"cpu"}),
       key(&M::max_split_size_mb, "max_split_size_mb", OnResume::may_change,
           "Cached GPU blocks above this size are not split for smaller tensors. Default: all blocks may be "
           "split.")
           .at_least(20)
           .at_most(1e9)
           .in("MiB")
           .idle_with("device", {"cpu"}),
       key(&M::roundup_power2_divisions, "roundup_power2_divisions", OnResume::may_change,
           "Round GPU allocations up to this many steps between powers of two, so that blocks are reused "
           "more often. 1, 2, 4, 8 or 16; 0: no rounding.")
           .at_least(0)
           .such_as({"0", "1", "2", "4", "8", "16"})
           .idle_with("device", {"cpu"}),
       key(&M::garbage_collection_threshold, "garbage_collection_threshold", OnResume::may_change,
           "Share of the allowed GPU memory above which unused cached blocks are released, oldest first. 0: "
           "never. LibTorch does not do this for expandable segments.")
           .at_least(0)
           .below(1)
           .idle_with("device", {"cpu"})
           .idle_with("memory.expandable_segments", {"true"})});
}

Section gpu_section() {
  using G = GpuConfig;
  Section gpu = section(
      "gpu",
      "Which GPU is good enough, and whether to wait for one. Used when `device` is auto, cuda or cuda:N.",
      {key(&G::min_gpu_memory_mb, "min_gpu_memory_mb", OnResume::may_change,
           "Free memory that a GPU must have to be chosen. Memory that other processes use is not free.")
           .at_least(0)
           .at_most(1e9)
           .in("MB"),
       key(&G::wait_for_gpu, "wait_for_gpu", OnResume::may_change,
           "Wait until a GPU has that much free memory and is not locked by another run. false: end with "
           "exit code 6 if there is none."),
       key(&G::gpu_wait_timeout_minutes, "gpu_wait_timeout_minutes", OnResume::may_change,
           "How long to wait before the run ends with exit code 6.")
           .at_least(0)
           .at_most(1e7)
           .in("minutes")
           .idle_without("gpu.wait_for_gpu", "true"),
       key(&G::gpu_check_interval_seconds, "gpu_check_interval_seconds", OnResume::may_change,
           "Time between two checks. Each check is a line in the log.")
           .above(0)
           .at_most(1e6)
           .in("seconds")
           .idle_without("gpu.wait_for_gpu", "true")});
  return idle_but("", {.key = "device", .values = {"cpu"}}, std::move(gpu));
}

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
           "What is sharded among the GPUs besides the samples. none: nothing, each has the whole "
           "model and optimizer. optimizer: each keeps the optimizer's state, and fp32 copies of weights, of "
           "its part of the weights only, updates that part and sends it to the others (ZeRO-1). all: the "
           "matrices of the model's blocks, too; each GPU fetches a block before it runs, and drops it then "
           "(as ZeRO-3 and FSDP do); all blocks are recomputed in the backward pass. For models that are too "
           "large for one GPU. auto: optimizer for full fine-tuning; none for LoRA, whose state is small.")
           .refuses("full", "is not a value; write all")
           .idle({.states = {{.key = "parallel.gpus", .values = {"1"}, .if_given = true}}, .in_help = true}),
       key(&P::timeout, "timeout", OnResume::may_change,
           "How long the others wait for a process that does not answer before it counts as lost and the "
           "run ends.")
           .at_least(1)
           .at_most(1e6)
           .in("seconds")
           .idle(
               {.states = {{.key = "parallel.gpus", .values = {"1"}, .if_given = true}}, .in_help = true})});
}

}  // namespace trainer::config
