#include "trainer/device/device.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "trainer/base/strings.h"
#include "trainer/device/acquire_device.h"

#include "base/file_facts.h"
#include "base/switches.h"
#include "device/cuda_driver.h"
#include "device/known_gpu.h"
#include "device/nvml.h"
#include "device/nvrtc.h"

namespace trainer {
namespace {

std::string try_open_cuda() {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) return "no NVIDIA driver on this machine";
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&at::globalContext), &info) == 0)
    return "LibTorch's folder is not known";
  const auto folder = std::filesystem::path(info.dli_fname).parent_path();  // TORCH/lib
  const auto library = folder / "libtorch_cuda.so";
  if (!std::filesystem::exists(library))
    return concat("this LibTorch has no CUDA library (",
                  how_to_get_cuda(folder.parent_path(), find_shipped("scripts/setup").has_value()), ")");
  if (dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL) == nullptr)
    return concat("libtorch_cuda.so: ", dlerror());
  const long needed = at::detail::getCUDAHooks().versionCUDART();
  // LibTorch itself would only say that there is no GPU.
  const std::string too_old =
      why_too_old(cuda_driver().cuda, static_cast<int>(needed), nvml_driver_version());
  if (!too_old.empty()) return too_old;
  if (!at::globalContext().hasCUDA()) return "the NVIDIA driver reports no usable GPU";
  if (!why_no_nvrtc().empty()) {
    return concat("this program's GPU kernels cannot be compiled: ", why_no_nvrtc(), " (",
                  how_to_get_nvrtc(folder.parent_path(), find_shipped("scripts/setup").has_value(),
                                   static_cast<int>(needed)),
                  ")");
  }
  // cuDNN's attention gives wrong gradients with masks on some GPUs (pytorch#196678)
  at::globalContext().setSDPUseCuDNN(false);
  use_tf32(true);
  // By default cuBLAS may add up the parts of a bf16 product in bf16, which loses up to 8 bits of the sum.
  at::globalContext().setAllowBF16ReductionCuBLAS(switch_is(Switch::bf16_sums, "on"));
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

int compute_major(c10::Device device) {
  const CudaDevice* const gpu = known_gpu(device);
  return gpu != nullptr ? gpu->major : 0;
}

bool computes_in_bf16(c10::Device device) {
  if (!device.is_cuda()) return true;
  const int major = compute_major(device);
  return major == 0 || major >= 8;
}

Deterministic::Deterministic(c10::DeviceType device, bool on)
    : before_(at::globalContext().deterministicAlgorithms()) {
  if (!on || device != c10::kCUDA) return;
  // Otherwise every new tensor is filled, in case somebody reads it too early.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

Deterministic::~Deterministic() {
  if (at::globalContext().deterministicAlgorithms() != before_)
    at::globalContext().setDeterministicAlgorithms(before_, /*warn_only=*/false);
}

void use_tf32(bool on) { at::globalContext().setAllowTF32CuBLAS(on); }

}  // namespace trainer
