// Adafactor's kernels in one specialization. Include this once for each specialization, in a namespace that
// defines Weight, Gradient and State.
#include "optim/adafactor.cu"

inline void add_to(trainer::emulated::Gpu& gpu, const std::string& definitions) {
  using trainer::emulated::Callable;
  gpu.add("adafactor.cu", definitions, "adafactor_sums", Callable<adafactor_sums>::call);
  gpu.add("adafactor.cu", definitions, "adafactor_moments", Callable<adafactor_moments>::call);
  gpu.add("adafactor.cu", definitions, "adafactor_means", Callable<adafactor_means>::call);
  gpu.add("adafactor.cu", definitions, "adafactor_squares", Callable<adafactor_squares>::call);
  gpu.add("adafactor.cu", definitions, "adafactor_steps", Callable<adafactor_steps>::call);
  gpu.add("adafactor.cu", definitions, "adafactor_write", Callable<adafactor_write>::call);
}
