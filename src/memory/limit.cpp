#include "trainer/memory/limit.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <regex>

#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "trainer/base/byte_size.h"
#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/device/cuda_driver.h"
#include "trainer/memory/host_allocator.h"

namespace trainer {
namespace {

constexpr double kDefaultShareOfGpu = 0.95;

c10::DeviceAllocator* gpu_allocator() { return c10::getDeviceAllocator(c10::kCUDA); }

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;  // also for "max"
}

// What a container may still use (cgroup v2).
int64_t free_in_cgroup() {
  const auto most = number_in("/sys/fs/cgroup/memory.max"),
             current = number_in("/sys/fs/cgroup/memory.current");
  return most && current ? *most - *current : std::numeric_limits<int64_t>::max();
}

int64_t available_on_host() {
  std::ifstream in("/proc/meminfo");
  for (std::string name, line; in >> name; std::getline(in, line)) {
    int64_t kilobytes = 0;
    if (name == "MemAvailable:" && in >> kilobytes) return kilobytes * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

// The limit that was applied last, for GPUs.
std::optional<int64_t> gpu_limit;

void limit_gpu(int64_t bytes, c10::Device device) {
  if (gpu_allocator()->initialized())
    throw DeviceError("memory.limit must be applied before the first tensor on a GPU");
  const auto total = static_cast<double>(gpu_allocator()->getMemoryInfo(device.index()).second);
  const double fraction = std::clamp(static_cast<double>(bytes) / total, 0.0, 1.0);
  // LibTorch replaces all settings at once, so those from the environment must be repeated here.
  const std::string before = c10::CachingAllocator::getAllocatorSettings();
  c10::CachingAllocator::setAllocatorSettings(
      concat(before, before.empty() ? "" : ",", "per_process_memory_fraction:", std::to_string(fraction)));
  gpu_limit = bytes;
}

}  // namespace

MemoryLimit MemoryLimit::parse(const std::string& text) {
  static const std::regex number("[0-9]*\\.?[0-9]+|[0-9]+\\.");
  MemoryLimit limit;
  if (text.empty()) return limit;
  limit.bytes_ = parse_byte_size(text);
  if (!limit.bytes_ && std::regex_match(text, number)) limit.share_ = std::strtod(text.c_str(), nullptr);
  const bool none = limit.bytes_.value_or(0) <= 0 && limit.share_.value_or(0) <= 0;
  if (none || limit.share_.value_or(0) > 1) {
    throw ConfigError(concat("memory.limit: '", text,
                             "' is neither a size above 0 such as 18GB or 16GiB, nor a share of the free "
                             "memory from 0 to 1"));
  }
  return limit;
}

std::optional<int64_t> MemoryLimit::bytes_on(c10::Device device) const {
  if (bytes_) return device.is_cuda() ? std::max<int64_t>(*bytes_ - kCudaContextBytes, 0) : *bytes_;
  const double share = share_.value_or(device.is_cuda() ? kDefaultShareOfGpu : 0.0);
  if (share == 0.0) return std::nullopt;
  return std::llround(share * static_cast<double>(free_memory(device)));
}

std::optional<int64_t> MemoryLimit::apply(c10::Device device) const {
  const std::optional<int64_t> bytes = bytes_on(device);
  if (!bytes) return bytes;
  if (device.is_cuda()) {
    limit_gpu(*bytes, device);
  } else {
    set_host_limit(*bytes);
  }
  return bytes;
}

std::optional<int64_t> limit_in_force(c10::Device device) {
  if (device.is_cuda()) {
    if (gpu_limit) return gpu_limit;
    return cuda_driver().devices.at(static_cast<size_t>(device.index())).total;
  }
  const int64_t limit = host_memory().limit;
  return limit > 0 ? std::optional(limit) : std::nullopt;
}

int64_t free_memory(c10::Device device) {
  if (!device.is_cuda()) return std::min(available_on_host(), free_in_cgroup());
  auto free = static_cast<int64_t>(gpu_allocator()->getMemoryInfo(device.index()).first);
  if (gpu_allocator()->initialized()) {
    const auto stats = gpu_allocator()->getDeviceStats(device.index());
    free += stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
  }
  return free;
}

}  // namespace trainer
