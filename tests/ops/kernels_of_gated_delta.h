// The kernels of the gated delta rule for one type and size of heads. Include this once for each, in a
// namespace that defines Element and kHeadDim.
namespace forward {
#include "ops/gated_delta.cu"
}
namespace backward {
#include "ops/gated_delta_backward.cu"
}

inline void add_to(trainer::emulated::Gpu& gpu, const std::string& definitions) {
  using trainer::emulated::Callable;
  const auto add = [&](const char* name, trainer::emulated::Call call) {
    gpu.add("gated_delta.cu", definitions, name, call);
  };
  const auto add_back = [&](const char* name, trainer::emulated::Call call) {
    gpu.add("gated_delta_backward.cu", definitions, name, call);
  };
  add("prepare_chunks", Callable<forward::prepare_chunks>::call);
  add("walk_chunks", Callable<forward::walk_chunks>::call);
  add("read_chunks", Callable<forward::read_chunks>::call);
  add_back("read_chunks_back", Callable<backward::read_chunks_back>::call);
  add_back("walk_chunks_back", Callable<backward::walk_chunks_back>::call);
  add_back("chunk_gradients", Callable<backward::chunk_gradients>::call);
  add_back("finish_gradients", Callable<backward::finish_gradients>::call);
}
