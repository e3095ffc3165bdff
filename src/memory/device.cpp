#include "trainer/memory/device.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <thread>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "trainer/base/strings.h"
#include "trainer/memory/acquire_device.h"
#include "trainer/memory/host_allocator.h"

#include "memory/cuda_driver.h"

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

// A line "Name:   1234 kB" of /proc/self/status in bytes.
int64_t status_bytes(const std::string& name) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
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

MemoryUse memory_use(c10::Device device) {
  if (device.is_cuda()) {
    const auto stats = c10::getDeviceAllocator(c10::kCUDA)->getDeviceStats(device.index());
    return {stats.allocated_bytes[0].current, stats.allocated_bytes[0].peak};
  }
  return {status_bytes("VmRSS"), status_bytes("VmHWM")};
}

void reset_peak_memory(c10::Device device) {
  if (device.is_cuda()) {
    c10::getDeviceAllocator(c10::kCUDA)->resetPeakStats(device.index());
  } else {
    reset_host_peak();
    std::ofstream("/proc/self/clear_refs") << "5";  // resets VmHWM
  }
}

void empty_cache(c10::Device device) {
  if (device.is_cuda()) c10::getDeviceAllocator(c10::kCUDA)->emptyCache();
}

void set_up_cpu(int64_t threads) {
  install_host_allocator();
  // Left to itself glibc raises this to 32 MB, and the libraries' buffers of changing sizes fragment its
  // heap.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  // Softmax and its gradients are full of numbers below 1e-38, and matrix products of these are up to five
  // times slower. Threads inherit the setting, so this comes before the first of them.
  at::globalContext().setFlushDenormal(true);
  // OpenMP has read OMP_NUM_THREADS; without it LibTorch counts cores, not the processors that they show.
  const char* const asked = std::getenv("OMP_NUM_THREADS");
  if (threads == 0 && asked != nullptr && *asked != '\0') return;
  const auto processors = static_cast<int64_t>(std::thread::hardware_concurrency());
  at::set_num_threads(static_cast<int>(threads > 0 ? threads : processors));
}

}  // namespace trainer
