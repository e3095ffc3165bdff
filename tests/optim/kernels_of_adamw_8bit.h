// The kernel of 8-bit AdamW in one specialization. Include this once for each specialization, in a namespace
// that defines Weight and Gradient.
#include "optim/adamw_8bit.cu"

inline void add_to(trainer::emulated::Gpu& gpu, const std::string& definitions) {
  gpu.add("adamw_8bit.cu", definitions, "adamw_8bit_update",
          trainer::emulated::Callable<adamw_8bit_update>::call);
}
