#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section memory_section() {
  using M = MemoryConfig;
  return section(
      "memory", "What to trade for memory.",
      {key(&M::gradient_checkpointing, "gradient_checkpointing", OnResume::may_change,
           "Compute the inside of blocks again in the backward pass. About a third more time for a "
           "small part of the memory of activations; the result is the same. true: all blocks; a number: so "
           "many, from the first; auto: as few as the memory plan allows (docs/memory.md).")
           .at_least(0),
       key(&M::rehearse, "rehearse", OnResume::may_change,
           "Before the first step, go through the largest micro-batches that the data and the configuration "
           "allow, with an update that changes nothing. What would run out of memory does so in the first "
           "minute."),
       key(&M::empty_cache_steps, "empty_cache_steps", OnResume::may_change,
           "Updates after which cached GPU memory is given back; in evaluation micro-batches. 0: never.")
           .at_least(0)
           .in("steps"),
       key(&M::limit, "limit", OnResume::may_change,
           "Most memory that the run may take on its device. A size (18GB, 16GiB, 900MB) or a share from 0 "
           "to 1 "
           "of what is free there at the start. Empty: 0.95 on a GPU, no limit on the CPU.")
           .matching("^(|[0-9]+(\\.[0-9]+)? ?[kMGT]i?B|0?\\.[0-9]+|1(\\.0*)?)$",
                     "a size such as 18GB or 16GiB, or a share from 0 to 1"),
       key(&M::expandable_segments, "expandable_segments", OnResume::may_change,
           "Let the GPU memory that LibTorch has reserved grow in place. Less of it is lost to fragments. "
           "This and the next three make up PYTORCH_ALLOC_CONF, which LibTorch's allocator on the GPU reads; "
           "where the environment has it (or PYTORCH_CUDA_ALLOC_CONF) already, that counts."),
       key(&M::max_split_size_mb, "max_split_size_mb", OnResume::may_change,
           "Cached GPU blocks above this size are not split for smaller tensors. Default: all are.")
           .at_least(20)
           .in("MiB"),
       key(&M::roundup_power2_divisions, "roundup_power2_divisions", OnResume::may_change,
           "Round GPU allocations up to so many steps between powers of two, so that blocks are used again "
           "more often. 1, 2, 4, 8 or 16; 0: not rounded.")
           .at_least(0),
       key(&M::garbage_collection_threshold, "garbage_collection_threshold", OnResume::may_change,
           "Part of the GPU memory allowed from which on unused cached blocks are given back, the oldest "
           "first. 0: never. LibTorch leaves expandable segments out.")
           .at_least(0)
           .below(1)});
}

}  // namespace trainer::config
