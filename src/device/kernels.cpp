#include "device/kernels.h"

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/dynamic_library.h"
#include "device/cuda_driver.h"
#include "device/nvrtc.h"
#include "device/target_device.h"

namespace trainer {
namespace {

constexpr int kOutOfMemory = 2;
constexpr int kMaxDynamicSharedSize = 8;        // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int64_t kSharedByDefault = 48 << 10;  // more has to be asked for

// The driver's functions, looked up once: a launch needs two of them.
struct Driver {
  int (*device)(int*, int) = cuda_library().find<int(int*, int)>("cuDeviceGet");
  int (*retain)(void**, int) = cuda_library().find<int(void**, int)>("cuDevicePrimaryCtxRetain");
  int (*current)(void**) = cuda_library().find<int(void**)>("cuCtxGetCurrent");
  int (*push)(void*) = cuda_library().find<int(void*)>("cuCtxPushCurrent_v2");
  int (*pop)(void**) = cuda_library().find<int(void**)>("cuCtxPopCurrent_v2");
  int (*load)(void**, const void*) = cuda_library().find<int(void**, const void*)>("cuModuleLoadData");
  int (*function)(void**, void*,
                  const char*) = cuda_library().find<int(void**, void*, const char*)>("cuModuleGetFunction");
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**) = cuda_library()
                              .find<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                        unsigned, void*, void**, void**)>("cuLaunchKernel");
  int (*set_attribute)(void*, int, int) = cuda_library().find<int(void*, int, int)>("cuFuncSetAttribute");
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

template <class Function, class... Arguments>
int driver_call(Function* function, Arguments... arguments) {
  return function == nullptr ? kNoDriverFunction : function(arguments...);
}

// Throws as LibTorch does for CUDA's errors, whose numbers are the driver's.
void check(int code, const char* what) {
  if (code == 0) return;
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, code, driver_problem(code, what));
}

// While it lives, a context is the current one of this thread. LibTorch has mostly made it that already: its
// CUDA runtime works in the primary context, too.
class CurrentContext {
 public:
  explicit CurrentContext(void* context) {
    void* current = nullptr;
    if (driver_call(driver().current, &current) == 0 && current == context) return;
    check(driver_call(driver().push, context), "context");
    pushed_ = true;
  }
  ~CurrentContext() {
    if (!pushed_) return;
    void* popped = nullptr;
    driver_call(driver().pop, &popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  bool pushed_ = false;
};

// Kernels on a device's primary context, which LibTorch uses too. Neither it nor the module is ever released.
class CudaKernels : public Kernels {
 public:
  CudaKernels(c10::Device device, const std::string& image) : device_(device) {
    int driver_device = 0;
    check(driver_call(driver().device, &driver_device, static_cast<int>(device.index())), "device");
    check(driver_call(driver().retain, &context_, driver_device), "context");
    const CurrentContext current(context_);
    check(driver_call(driver().load, &module_, static_cast<const void*>(image.data())), "loading kernels");
  }

 protected:
  void launch(const char* function, const KernelGrid& grid,
              std::span<const KernelArgument> arguments) const override {
    const CurrentContext current(context_);
    constexpr size_t kMost = 32;
    TORCH_CHECK(arguments.size() <= kMost, function, ": more than ", kMost, " arguments");
    std::array<void*, kMost> values{};
    for (size_t i = 0; i < arguments.size(); i++) values[i] = arguments[i].value;
    void* stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device_).native_handle();
    const auto number = [](int64_t n) { return static_cast<unsigned>(n); };
    void* const handle = handle_of(function);
    if (grid.shared > kSharedByDefault) {
      const int code =
          driver_call(driver().set_attribute, handle, kMaxDynamicSharedSize, static_cast<int>(grid.shared));
      check(code, function);
    }
    check(driver_call(driver().launch, handle, number(grid.x), number(grid.y), 1U, number(grid.threads), 1U,
                      1U, number(grid.shared), stream, values.data(), static_cast<void**>(nullptr)),
          function);
  }

 private:
  // Callers give literals, so that the address finds the function again.
  void* handle_of(const char* function) const {
    const std::scoped_lock lock(mutex_);
    for (const auto& [name, handle] : handles_) {
      if (name == function) return handle;
    }
    void* handle = nullptr;
    check(driver_call(driver().function, &handle, module_, function), function);
    handles_.emplace_back(function, handle);
    return handle;
  }

  c10::Device device_;
  void *context_ = nullptr, *module_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<const char*, void*>> handles_;
};

class NothingStarts : public Kernels {
 protected:
  void launch(const char*, const KernelGrid&, std::span<const KernelArgument>) const override {}
};

std::string definitions_of(const KernelForm& form) {
  const char* element = form.bf16 ? "bf16" : "float";
  return form.width == 0 ? concat("Element=", element) : concat("Element=", element, " kWidth=", form.width);
}

// Compiled kernels by device, file and definitions.
class Registry {
 public:
  const Kernels& find(c10::Device device, const KernelFile& file, const KernelForm& form) {
    const std::scoped_lock lock(mutex_);
    for (const Found& found : found_) {
      if (found.device == device.index() && found.file == &file && found.form == form) return *found.kernels;
    }
    const Kernels& kernels = find_by_text(device, file, definitions_of(form));
    found_.push_back({device.index(), &file, form, &kernels});
    return kernels;
  }

  const Kernels& find(c10::Device device, const KernelFile& file, const std::string& definitions) {
    const std::scoped_lock lock(mutex_);
    return find_by_text(device, file, definitions);
  }

 private:
  struct Found {
    c10::DeviceIndex device;
    const KernelFile* file;
    KernelForm form;
    const Kernels* kernels;
  };

  const Kernels& find_by_text(c10::Device device, const KernelFile& file, const std::string& definitions) {
    auto& kernels = kernels_[{device.index(), file.text}];
    if (const auto found = kernels.find(definitions); found != kernels.end()) return *found->second;
    return *kernels.emplace(definitions, build(device, file, definitions)).first->second;
  }

  static std::unique_ptr<Kernels> build(c10::Device device, const KernelFile& file,
                                        const std::string& definitions) {
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
    throw DeviceError(
        concat(device.str(), ": the trainer's GPU kernels do not work there: ", problem,
               "\n`trainer doctor` looks at the driver and the compiler; device=cpu runs without"));
  }

  std::mutex mutex_;
  using ByDefinitions = std::unordered_map<std::string, std::unique_ptr<Kernels>>;
  std::map<std::pair<c10::DeviceIndex, const char*>, ByDefinitions>
      kernels_;  // by device and the file's text
  std::vector<Found> found_;
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

}  // namespace

const KernelFile& kernel_file(std::string_view name) {
  for (const KernelFile& file : kernel_files()) {
    if (std::string_view(file.name).starts_with(name) &&
        std::string_view(file.name).substr(name.size()) == ".cu")
      return file;
  }
  TORCH_CHECK(false, "there are no kernels ", name, ".cu");
}

const Kernels& find_kernels(c10::Device device, const KernelFile& file, const std::string& definitions) {
  static const NothingStarts nothing;
  if (device.is_cuda()) return registry().find(device, file, definitions);
  const bool planned = device.is_meta() && target_of(device) == c10::kCUDA;
  const KernelsForTests& tests = planned ? kernels_for_meta() : kernels_for_cpu();
  if (planned && !tests) return nothing;
  TORCH_CHECK(tests && (planned || device.is_cpu()), file.name, ": a GPU's kernels are asked for on ",
              device);
  return *tests(file, definitions);
}

const Kernels& find_kernels(c10::Device device, const KernelFile& file, const KernelForm& form) {
  if (device.is_cuda()) return registry().find(device, file, form);
  return find_kernels(device, file, definitions_of(form));
}

bool has_kernels(c10::Device device) {
  return device.is_cpu() ? static_cast<bool>(kernels_for_cpu()) : target_of(device) == c10::kCUDA;
}

void set_kernels_for_cpu(KernelsForTests kernels) { kernels_for_cpu() = std::move(kernels); }
void set_kernels_for_meta(KernelsForTests kernels) { kernels_for_meta() = std::move(kernels); }

}  // namespace trainer
