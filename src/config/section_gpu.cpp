#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section gpu_section() {
  using G = GpuConfig;
  return section(
      "gpu", "Which GPU is good enough, and whether to wait for one. For `device`: auto, cuda and cuda:N.",
      {key(&G::min_gpu_memory_mb, "min_gpu_memory_mb", OnResume::may_change,
           "Free memory that a GPU must have to be taken, other people's use of it counted.")
           .at_least(0)
           .in("MB"),
       key(&G::wait_for_gpu, "wait_for_gpu", OnResume::may_change,
           "Wait until a GPU has that much and no other run that waited holds it. false: end with exit code "
           "6 when none has."),
       key(&G::gpu_wait_timeout_minutes, "gpu_wait_timeout_minutes", OnResume::may_change,
           "How long to wait before the run ends with exit code 6.")
           .at_least(0)
           .in("minutes"),
       key(&G::gpu_check_interval_seconds, "gpu_check_interval_seconds", OnResume::may_change,
           "Time between two looks, each a line in the log.")
           .above(0)
           .in("seconds")});
}

}  // namespace trainer::config
