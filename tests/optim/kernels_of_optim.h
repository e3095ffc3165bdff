// The kernels of src/optim/kernels in one specialisation: included in a namespace that defines Weight,
// Gradient, State and kWidth, once for each.
#include "optim/kernels/adamw.cu"

inline void add_to(trainer::emulated::Gpu& gpu, const std::string& definitions) {
  gpu.add("adamw.cu", definitions, "adamw_update", trainer::emulated::Callable<adamw_update>::call);
}
