#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section observe_section() {
  using O = ObserveConfig;
  return section(
      "observe", "What a run writes for people who watch it, besides metrics.jsonl (docs/observing.md).",
      {key(&O::tensorboard, "tensorboard", OnResume::may_change,
           "Write event files for TensorBoard to OUT/tensorboard. Metrics, generated answers and the "
           "configuration."),
       key(&O::report_minutes, "report_minutes", OnResume::may_change,
           "Write the page OUT/report.html anew when it is this old. Also after evaluations and at the end. "
           "0: "
           "no page.")
           .at_least(0)
           .at_most(1e7)
           .in("minutes")});
}

}  // namespace trainer::config
