#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section gpu_section() {
  using G = GpuConfig;
  return section(
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
           .in("minutes"),
       key(&G::gpu_check_interval_seconds, "gpu_check_interval_seconds", OnResume::may_change,
           "Time between two checks. Each check is a line in the log.")
           .above(0)
           .at_most(1e6)
           .in("seconds")});
}

}  // namespace trainer::config
