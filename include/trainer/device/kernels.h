// Kernels of ours for GPUs. Their files, src/*/kernels/*.cu, are in the library as text and are compiled for
// the GPU at hand when first needed, by NVRTC, which comes with LibTorch's CUDA libraries.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>

#include <c10/core/Device.h>

namespace trainer {

struct KernelFile {
  const char* name;  // "rms_norm.cu"
  const char* text;
};

struct KernelGrid {
  int64_t x = 1, y = 1;  // blocks; where one of them is 0 nothing is started
  int64_t threads = 256;
};

struct KernelArgument {
  enum class Kind { pointer, integer, real, other };
  void* value;
  size_t size;
  Kind kind;
};

// A file compiled in one specialisation.
class Kernels {
 public:
  virtual ~Kernels() = default;

  // Starts `function` on the current stream. The arguments are of its parameters' types; pointers may be
  // void*.
  template <class... Arguments>
  void start(const char* function, const KernelGrid& grid, Arguments... arguments) const {
    if (grid.x == 0 || grid.y == 0) return;
    const KernelArgument list[] = {{&arguments, sizeof(Arguments), kind_of<Arguments>()}...};
    launch(function, grid, list);
  }

  template <class T>
  static constexpr KernelArgument::Kind kind_of() {
    if (std::is_pointer_v<T>) return KernelArgument::Kind::pointer;
    if (std::is_integral_v<T>) return KernelArgument::Kind::integer;
    return std::is_floating_point_v<T> ? KernelArgument::Kind::real : KernelArgument::Kind::other;
  }

 protected:
  virtual void launch(const char* function, const KernelGrid& grid,
                      std::span<const KernelArgument> arguments) const = 0;
};

// `definitions`: what the file leaves open, "Element=bf16 kWidth=8". nullptr where LibTorch's operators are
// to be used instead: no NVRTC, a file that does not compile (one line of warning), TRAINER_KERNELS=off in
// the environment, a CPU. On meta: what starts nothing, so that a plan counts what the callers allocate.
const Kernels* find_kernels(c10::Device device, const KernelFile& file, const std::string& definitions);

// What find_kernels() gives for CPU tensors from now on: tests run the kernels there. {}: nullptr again.
using KernelsForCpu = std::function<const Kernels*(const KernelFile&, const std::string& definitions)>;
void set_kernels_for_cpu(KernelsForCpu kernels);

}  // namespace trainer
