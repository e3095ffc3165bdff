#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section recovery_section() {
  using R = RecoveryConfig;
  return section(
      "recovery",
      "What happens where memory does not suffice: the step is done again in smaller micro-batches, with the "
      "same "
      "result.",
      {key(&R::min_batch_size, "min_batch_size", "Micro-batches of so many samples are not made smaller.")
           .at_least(1)
           .at_most(1e6)
           .in("samples"),
       key(&R::max_retries, "max_retries",
           "How often one step is done again. 0: never, the run ends with exit code 5.")
           .at_least(0)
           .at_most(1e6),
       key(&R::grow_after, "grow_after",
           "Steps without a lack of memory after which larger micro-batches are tried again. 0: never.")
           .at_least(0)
           .at_most(1e10)
           .in("steps"),
       key(&R::try_other_gpus, "try_other_gpus",
           "Where nothing helps on a GPU, go on on the one with the most free memory among the others. "
           "Nothing "
           "is lost."),
       key(&R::cpu_fallback, "cpu_fallback",
           "Where nothing helps on a GPU, go on on the CPU. Much slower, but nothing is lost.")});
}

}  // namespace trainer::config
