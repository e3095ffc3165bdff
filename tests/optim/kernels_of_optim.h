// AdamW's kernel in one specialization. Include this once for each specialization, in a namespace that
// defines Weight, Gradient and State.
#include "optim/adamw.cu"

inline void add_to(trainer::emulated::Gpu& gpu, const std::string& definitions) {
  gpu.add("adamw.cu", definitions, "adamw_update", trainer::emulated::Callable<adamw_update>::call);
}
