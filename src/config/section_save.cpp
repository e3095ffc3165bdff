#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section save_section() {
  using S = SaveConfig;
  return section(
      "save", "Checkpoints on the way, from which a run goes on. The result is saved at the end in any case.",
      {key(&S::strategy, "strategy", OnResume::may_change,
           "When to save. Every save.steps, every epoch, or only at the end. Unless no, after the last step, "
           "too, so that a run can be made longer."),
       key(&S::steps, "steps", OnResume::may_change, "Updates between checkpoints. For strategy: steps.")
           .at_least(1)
           .in("steps"),
       key(&S::minutes, "minutes", OnResume::may_change,
           "Save also when the last checkpoint is so old. With any strategy. 0: not by time.")
           .at_least(0)
           .in("minutes"),
       key(&S::total_limit, "total_limit", OnResume::may_change,
           "Checkpoints to keep; older ones are deleted. 0: all. The best one counts and stays; so do the "
           "newest "
           "that is whole, and the newest after which a step went well.")
           .at_least(0),
       key(&S::weights_only, "weights_only", OnResume::may_change,
           "Leave out what is needed to go on: optimizer and position. Smaller, but a run that is stopped "
           "starts from its beginning."),
       key(&S::async, "async", OnResume::may_change,
           "Write in the background. Training waits for a copy to main memory only; where that has no room "
           "for "
           "one, until all is written.")});
}

}  // namespace trainer::config
