#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section recovery_section() {
  using R = RecoveryConfig;
  return section(
      "recovery",
      "What happens when a step runs out of memory: it is repeated in smaller micro-batches, with the same "
      "result.",
      {key(&R::min_batch_size, "min_batch_size", OnResume::may_change,
           "Micro-batches of this many samples are not split further.")
           .at_least(1)
           .at_most(1e6)
           .in("samples"),
       key(&R::max_retries, "max_retries", OnResume::may_change,
           "How often one step is retried. 0: never; the run ends with exit code 5.")
           .at_least(0)
           .at_most(1e6),
       key(&R::grow_after, "grow_after", OnResume::may_change,
           "Steps without running out of memory after which larger micro-batches are tried again, and after "
           "four times as many without recompute. 0: never.")
           .at_least(0)
           .at_most(1e10)
           .in("steps"),
       key(&R::try_other_gpus, "try_other_gpus", OnResume::may_change,
           "If nothing helps on one GPU, continue on the other GPU with the most free memory. Nothing is "
           "lost."),
       key(&R::cpu_fallback, "cpu_fallback", OnResume::may_change,
           "If nothing helps on a GPU, continue on the CPU. Much slower, but nothing is lost.")});
}

}  // namespace trainer::config
