#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section save_section() {
  using S = SaveConfig;
  return section(
      "save",
      "Checkpoints during the run, from which it can resume. The result is saved at the end in any case.",
      {key(&S::strategy, "strategy", OnResume::may_change,
           "When to save a checkpoint. Every save.steps updates, after every epoch, or no: none. With steps "
           "and epoch there is also one after the last step, so that a run can be made longer."),
       key(&S::steps, "steps", OnResume::may_change, "Updates between checkpoints. For strategy: steps.")
           .at_least(1)
           .at_most(1e10)
           .in("steps"),
       key(&S::minutes, "minutes", OnResume::may_change,
           "Also save when the last checkpoint is this old. Works with any strategy. 0: off.")
           .at_least(0)
           .at_most(1e7)
           .in("minutes"),
       key(&S::total_limit, "total_limit", OnResume::may_change,
           "Checkpoints to keep; older ones are deleted. 0: keep all. The best checkpoint counts and is "
           "kept; so are the newest complete one, and the newest after which a step went well.")
           .at_least(0)
           .at_most(1e6),
       key(&S::result_dtype, "result_dtype", OnResume::may_change,
           "Type of the saved result. auto: each tensor in the type that it came in, from the files of the "
           "model or of lora.adapter; new ones as they were trained. Checkpoints keep the type of the "
           "training."),
       key(&S::weights_only, "weights_only", OnResume::may_change,
           "Leave out what resuming needs: optimizer state and position. Checkpoints are smaller, but a run "
           "that is killed starts from its beginning."),
       key(&S::async, "async", OnResume::may_change,
           "Write checkpoints in the background. Training waits only for a copy to main memory; if there is "
           "no room for a copy, or something is offloaded, it waits until everything is written.")});
}

}  // namespace trainer::config
