#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section memory_section() {
  using M = MemoryConfig;
  return section(
      "memory", "What to trade for memory.",
      {key(&M::gradient_checkpointing, "gradient_checkpointing",
           "Compute the inside of each block again in the backward pass. About a third more time for a "
           "small part of the memory of activations; the result is the same."),
       key(&M::empty_cache_steps, "empty_cache_steps",
           "Updates after which cached GPU memory is given back. 0: never.")
           .at_least(0)
           .in("steps")});
}

}  // namespace trainer::config
