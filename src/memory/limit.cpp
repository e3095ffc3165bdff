#include "trainer/memory/limit.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <regex>

#include <ATen/Context.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/memory/host_allocator.h"

#include "base/text.h"
#include "device/cuda_driver.h"
#include "memory/gpu_allocator.h"

namespace trainer {
namespace {

constexpr double kDefaultShareOfGpu = 0.95;

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;  // also for "max"
}

// Returns the memory that this container may still use (cgroup v2).
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

struct GpuLimit {
  int64_t bytes = 0;
  std::optional<double> share;  // of the memory that other processes leave free
};

// The limits of those GPUs that have one.
std::map<c10::DeviceIndex, GpuLimit>& gpu_limits() {
  static std::map<c10::DeviceIndex, GpuLimit> limits;
  return limits;
}

int64_t reserved_on(c10::Device gpu) {
  return gpu_allocator().getDeviceStats(gpu.index()).reserved_bytes[0].current;
}

int64_t share_of_gpu(double share, c10::Device gpu) {
  const auto free = static_cast<int64_t>(gpu_allocator().getMemoryInfo(gpu.index()).first);
  return std::llround(share * static_cast<double>(free + reserved_on(gpu)));
}

void limit_gpu(const GpuLimit& limit, c10::Device gpu) {
  const auto total = static_cast<double>(gpu_allocator().getMemoryInfo(gpu.index()).second);
  gpu_allocator().setMemoryFraction(std::clamp(static_cast<double>(limit.bytes) / total, 0.0, 1.0),
                                    gpu.index());
  gpu_limits()[gpu.index()] = limit;
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
  if (device.is_cuda()) {
    return bytes_ ? std::max<int64_t>(*bytes_ - kCudaContextBytes, 0)
                  : share_of_gpu(share_.value_or(kDefaultShareOfGpu), device);
  }
  if (bytes_ || !share_) return bytes_;
  return std::llround(*share_ * static_cast<double>(free_memory(device)));
}

std::optional<int64_t> MemoryLimit::apply(c10::Device device) const {
  const std::optional<int64_t> bytes = bytes_on(device);
  if (!bytes) return bytes;
  if (device.is_cuda()) {
    const std::optional<double> share =
        bytes_ ? std::nullopt : std::optional(share_.value_or(kDefaultShareOfGpu));
    limit_gpu({*bytes, share}, device);
  } else {
    set_host_limit(*bytes);
  }
  return bytes;
}

void lift_gpu_limit(c10::Device gpu) {
  if (gpu_limits().erase(gpu.index()) > 0) gpu_allocator().setMemoryFraction(1.0, gpu.index());
}

std::optional<ChangedLimit> follow_gpu_limit(c10::Device gpu) {
  constexpr double kNoticeable = 0.05;
  const auto found = gpu_limits().find(gpu.index());
  if (found == gpu_limits().end() || !found->second.share) return std::nullopt;
  const int64_t from = found->second.bytes, to = share_of_gpu(*found->second.share, gpu);
  if (std::abs(static_cast<double>(to - from)) < kNoticeable * static_cast<double>(from)) return std::nullopt;
  limit_gpu({to, found->second.share}, gpu);
  return ChangedLimit{from, to};
}

std::optional<int64_t> limit_in_force(c10::Device device) {
  if (device.is_cuda()) {
    const auto found = gpu_limits().find(device.index());
    if (found != gpu_limits().end()) return found->second.bytes;
    return cuda_driver().devices.at(static_cast<size_t>(device.index())).total;
  }
  const int64_t limit = host_memory().limit;
  return limit > 0 ? std::optional(limit) : std::nullopt;
}

int64_t process_limit(c10::Device device) {
  const int64_t limit = limit_in_force(device).value_or(0);
  const bool beside_context = device.is_cuda() && gpu_limits().contains(device.index());
  return limit + (beside_context ? kCudaContextBytes : 0);
}

int64_t free_memory(c10::Device device) {
  if (!device.is_cuda()) return std::min(available_on_host(), free_in_cgroup());
  const auto free = static_cast<int64_t>(gpu_allocator().getMemoryInfo(device.index()).first);
  return free + reserved_on(device) -
         gpu_allocator().getDeviceStats(device.index()).allocated_bytes[0].current;
}

GpuAllocator& gpu_allocator() {
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(c10::kCUDA);
  if (!allocator->initialized()) at::globalContext().lazyInitDevice(c10::kCUDA);
  return static_cast<GpuAllocator&>(*allocator);
}

}  // namespace trainer
