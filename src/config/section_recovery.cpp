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
      {key(&R::min_batch_size, "min_batch_size", OnResume::may_change,
           "Micro-batches of so many samples are not made smaller.")
           .at_least(1)
           .in("samples"),
       key(&R::max_retries, "max_retries", OnResume::may_change,
           "How often one step is done again. 0: never, the run ends with exit code 5.")
           .at_least(0),
       key(&R::grow_after, "grow_after", OnResume::may_change,
           "Steps without a lack of memory after which larger micro-batches are tried again. 0: never.")
           .at_least(0)
           .in("steps"),
       key(&R::try_other_gpus, "try_other_gpus", OnResume::may_change,
           "Where nothing helps on a GPU, go on on the one with the most free memory among the others. "
           "Nothing "
           "is lost."),
       key(&R::cpu_fallback, "cpu_fallback", OnResume::may_change,
           "Where nothing helps on a GPU, go on on the CPU. Much slower, but nothing is lost.")});
}

}  // namespace trainer::config
