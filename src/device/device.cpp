#include "trainer/device/device.h"

#include <dlfcn.h>
#include <filesystem>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "trainer/base/strings.h"
#include "trainer/device/acquire_device.h"
#include "trainer/device/cuda_driver.h"

namespace trainer {
namespace {

std::string try_open_cuda() {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) return "no NVIDIA driver on this machine";
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&at::globalContext), &info) == 0)
    return "LibTorch's folder is not known";
  const auto library = std::filesystem::path(info.dli_fname).parent_path() / "libtorch_cuda.so";
  if (!std::filesystem::exists(library))
    return "this LibTorch has no CUDA library (scripts/setup --full installs one that has)";
  if (dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL) == nullptr)
    return concat("libtorch_cuda.so: ", dlerror());
  if (!at::globalContext().hasCUDA()) return "the NVIDIA driver reports no usable GPU";
  // cuDNN's attention gives wrong gradients with masks on some GPUs (pytorch#196678)
  at::globalContext().setSDPUseCuDNN(false);
  use_tf32(true);
  return "";
}

}  // namespace

const std::string& open_cuda() {
  static const std::string why_not = try_open_cuda();
  return why_not;
}

c10::Device choose_device(const std::string& wanted) { return acquire_device(wanted, GpuConfig{}).device; }

std::string describe_device(c10::Device device) {
  if (device.is_cpu()) return concat("cpu (", at::get_num_threads(), " threads)");
  const auto [free, total] = c10::getDeviceAllocator(c10::kCUDA)->getMemoryInfo(device.index());
  const auto& known = cuda_driver().devices;
  const auto index = static_cast<size_t>(device.index());
  const std::string name = index < known.size() ? " " + known[index].name : "";
  return concat(device.str(), name, ", ", bytes_string(static_cast<int64_t>(free)), " free of ",
                bytes_string(static_cast<int64_t>(total)));
}

bool computes_in_bf16(c10::Device device) {
  if (!device.is_cuda()) return true;
  const auto& known = cuda_driver().devices;
  const auto index = static_cast<size_t>(device.index());
  return index >= known.size() || known[index].major >= 8;
}

void use_tf32(bool on) { at::globalContext().setAllowTF32CuBLAS(on); }

}  // namespace trainer
