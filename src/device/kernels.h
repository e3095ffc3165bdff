// The project's own GPU kernels. Their files, src/*/*.cu, are in the library as text. They are
// compiled for the GPU at hand when first needed, by NVRTC, which comes with LibTorch's CUDA libraries.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <c10/core/Device.h>

namespace trainer {

struct KernelFile {
  const char* name;  // "rms_norm.cu"
  const char* text;
};

// Returns src/*/NAME.cu.
const KernelFile& kernel_file(std::string_view name);

struct KernelGrid {
  int64_t x = 1, y = 1;  // blocks; if one of them is 0, nothing is launched
  int64_t threads = 256;
  int64_t shared = 0;  // bytes of shared memory for dynamic_shared(), at most kMostShared
};
constexpr int64_t kMostShared = 99 << 10;  // what a block may have on every GPU from 8.0 on

struct KernelArgument {
  enum class Kind { pointer, integer, real, other };
  void* value;
  size_t size;
  Kind kind;
};

// A file compiled for one set of definitions.
class Kernels {
 public:
  virtual ~Kernels() = default;

  // Launches `function` on the current stream. The arguments have the types of its parameters; pointers may
  // be void*.
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

// Returns a file's kernels. `definitions` are the macros that the file leaves open: "Element=bf16 kWidth=8".
// On meta, in the plan of a GPU, they launch nothing, so that the plan counts what the callers allocate.
// Throws DeviceError if the file does not compile for this GPU, c10::Error on a CPU, which has none.
const Kernels& find_kernels(c10::Device device, const KernelFile& file, const std::string& definitions);

// Returns whether there are kernels: on a GPU, on meta in the plan of one, and on a CPU for which tests have
// set some.
bool has_kernels(c10::Device device);

// The definitions that most files leave open: the type of the elements, and how many a thread moves at once
// (0: not defined).
struct KernelForm {
  bool bf16 = false;  // else fp32
  int64_t width = 0;
  bool operator==(const KernelForm&) const = default;
};

// The same for "Element=bf16 kWidth=8" and the like. On a GPU kernels that were found before are found
// without a string, because a step asks for each a thousand times.
const Kernels& find_kernels(c10::Device device, const KernelFile& file, const KernelForm& form);

// Sets what find_kernels() returns for CPU tensors from now on: tests run the kernels there. {}: none
// again.
using KernelsForTests = std::function<const Kernels*(const KernelFile&, const std::string& definitions)>;
void set_kernels_for_cpu(KernelsForTests kernels);
// The same for meta: tests count launches there.
void set_kernels_for_meta(KernelsForTests kernels);

// The files src/*/*.cu, and the headers that those include under the names that they use ("ops/norm.cuh"), as
// cmake/Kernels.cmake compiles them in.
std::span<const KernelFile> kernel_files();
std::span<const KernelFile> kernel_headers();

}  // namespace trainer
