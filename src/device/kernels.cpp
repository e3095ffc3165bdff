#include "trainer/device/kernels.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/device/cuda_driver.h"

#include "device/dynamic_library.h"
#include "device/nvrtc.h"

namespace trainer {
namespace {

constexpr int kNoDriverFunction = -1;
constexpr int kOutOfMemory = 2;

template <class... Arguments>
int driver_call(const char* name, Arguments... arguments) {
  return cuda_library().call(kNoDriverFunction, name, arguments...);
}

// Throws as LibTorch does for CUDA's errors, whose numbers are the driver's.
void check(int code, const char* what) {
  if (code == 0) return;
  const char* name = nullptr;
  driver_call("cuGetErrorName", code, &name);
  const std::string message =
      concat("CUDA: ", what, ": ", name == nullptr ? "no such function in the driver" : name);
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, code, message);
}

// While it lives, makes a context the current one of this thread.
class CurrentContext {
 public:
  explicit CurrentContext(void* context) { check(driver_call("cuCtxPushCurrent_v2", context), "context"); }
  ~CurrentContext() {
    void* popped = nullptr;
    driver_call("cuCtxPopCurrent_v2", &popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
};

// Kernels on a device's primary context, which LibTorch uses too. Neither it nor the module is ever released.
class CudaKernels : public Kernels {
 public:
  CudaKernels(c10::Device device, const std::string& image) : device_(device) {
    int driver_device = 0;
    check(driver_call("cuDeviceGet", &driver_device, static_cast<int>(device.index())), "device");
    check(driver_call("cuDevicePrimaryCtxRetain", &context_, driver_device), "context");
    const CurrentContext current(context_);
    check(driver_call("cuModuleLoadData", &module_, static_cast<const void*>(image.data())),
          "loading kernels");
  }

 protected:
  void launch(const char* function, const KernelGrid& grid,
              std::span<const KernelArgument> arguments) const override {
    const CurrentContext current(context_);
    void* handle = nullptr;
    check(driver_call("cuModuleGetFunction", &handle, module_, function), function);
    std::vector<void*> values;
    for (const KernelArgument& argument : arguments) values.push_back(argument.value);
    void* stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device_).native_handle();
    const auto number = [](int64_t n) { return static_cast<unsigned>(n); };
    check(driver_call("cuLaunchKernel", handle, number(grid.x), number(grid.y), 1U, number(grid.threads), 1U,
                      1U, 0U, stream, values.data(), static_cast<void**>(nullptr)),
          function);
  }

 private:
  c10::Device device_;
  void *context_ = nullptr, *module_ = nullptr;
};

class NothingStarts : public Kernels {
 protected:
  void launch(const char*, const KernelGrid&, std::span<const KernelArgument>) const override {}
};

bool switched_off() {
  static const bool off = [] {
    const char* value = std::getenv("TRAINER_KERNELS");
    return value != nullptr && std::string(value) == "off";
  }();
  return off;
}

// Compiled kernels by device, file and definitions; nullptr if they do not work.
class Registry {
 public:
  const Kernels* find(c10::Device device, const KernelFile& file, const std::string& definitions) {
    const std::scoped_lock lock(mutex_);
    const std::string key = concat(device.index(), " ", file.name, " ", definitions);
    if (const auto found = kernels_.find(key); found != kernels_.end()) return found->second.get();
    return kernels_.emplace(key, build(device, file, definitions)).first->second.get();
  }

  // Whether a plan may rely on a file.
  bool works(const KernelFile& file) {
    const std::scoped_lock lock(mutex_);
    return !failed_.contains(file.name);
  }

 private:
  std::unique_ptr<Kernels> build(c10::Device device, const KernelFile& file, const std::string& definitions) {
    const auto& gpus = cuda_driver().devices;
    const auto index = static_cast<size_t>(device.index());
    std::string problem = "the driver does not say what GPU this is";
    if (index < gpus.size()) {
      const CompiledKernels compiled =
          compile_kernels(file, definitions, {gpus[index].major, gpus[index].minor});
      problem = compiled.problem;
      if (problem.empty()) {
        try {
          return std::make_unique<CudaKernels>(device, compiled.image);
        } catch (const c10::AcceleratorError& error) {
          if (error.get_error_code() == kOutOfMemory) throw;
          problem = error.what_without_backtrace();
        }
      }
    }
    failed_.insert(file.name);
    if (!std::exchange(warned_, true)) {
      log::warning(concat(device.str(), ": using LibTorch's operators instead of the trainer's own kernels, ",
                          "which need less time and memory: ", problem));
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Kernels>> kernels_;
  std::set<std::string> failed_;
  bool warned_ = false;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

KernelsForTests& kernels_for_cpu() {
  static KernelsForTests instance;
  return instance;
}

KernelsForTests& kernels_for_meta() {
  static KernelsForTests instance;
  return instance;
}

// If no GPU is open, the plan is for one on another machine.
const Kernels* planned(const KernelFile& file) {
  static const NothingStarts nothing;
  if (c10::impl::hasDeviceGuardImpl(c10::kCUDA) && !why_no_nvrtc().empty()) return nullptr;
  return registry().works(file) ? &nothing : nullptr;
}

}  // namespace

const Kernels* find_kernels(c10::Device device, const KernelFile& file, const std::string& definitions) {
  if (switched_off()) return nullptr;
  if (device.is_meta()) return kernels_for_meta() ? kernels_for_meta()(file, definitions) : planned(file);
  if (device.is_cuda()) return registry().find(device, file, definitions);
  return kernels_for_cpu() ? kernels_for_cpu()(file, definitions) : nullptr;
}

void set_kernels_for_cpu(KernelsForTests kernels) { kernels_for_cpu() = std::move(kernels); }
void set_kernels_for_meta(KernelsForTests kernels) { kernels_for_meta() = std::move(kernels); }

}  // namespace trainer
