// The kernels of T5's attention for one size of heads. Include this once for each size, in a namespace that
// defines kHeadDim.
#include "ops/t5_attention.cu"

inline void add_to(trainer::emulated::Gpu& gpu) {
  using trainer::emulated::Callable;
  const std::string definitions = "kHeadDim=" + std::to_string(kHeadDim);
  const auto add = [&](const char* name, trainer::emulated::Call call) {
    gpu.add("t5_attention.cu", definitions, name, call);
  };
  add("attend", Callable<attend>::call);
  add("attend_backward_queries", Callable<attend_backward_queries>::call);
  add("attend_backward_queries_and_bias", Callable<attend_backward_queries_and_bias>::call);
  add("attend_backward_keys", Callable<attend_backward_keys>::call);
  add("sum_bias_parts", Callable<sum_bias_parts>::call);
}
