#include "trainer/memory/device_memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <malloc.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "trainer/base/strings.h"
#include "trainer/memory/cache_watch.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/memory/limit.h"
#include "trainer/memory/summary.h"
#include "trainer/memory/thrash_watch.h"

#include "base/threads.h"

namespace trainer {

// Returns the value of a line "Name:   1234 kB" in /proc/self/status, in bytes.
static int64_t status_bytes(const std::string& name) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

// OpenMP ends the process if it cannot start a thread. So all of them are started now, before other parts of
// the program take what the system allows.
static void start_openmp(const char* key) {
  const int64_t threads = at::get_num_threads();
  require_threads(threads - 1, key);
  at::parallel_for(0, threads, /*grain_size=*/1, [](int64_t, int64_t) {});
}

// The peak of a GPU since the start or reset_peak_memory(). LibTorch's own one is that since the last
// look_at_cache().
static std::atomic<int64_t>& earlier_peak(c10::Device device) {
  static std::array<std::atomic<int64_t>, 64> peaks{};
  return peaks.at(static_cast<size_t>(device.index()));
}

static c10::CachingDeviceAllocator::DeviceStats gpu_stats(c10::Device device) {
  return c10::getDeviceAllocator(c10::kCUDA)->getDeviceStats(device.index());
}

static int64_t gpu_peak(c10::Device device, const c10::CachingDeviceAllocator::DeviceStats& stats) {
  return std::max<int64_t>(earlier_peak(device), stats.allocated_bytes[0].peak);
}

CacheUse look_at_cache(c10::Device device) {
  if (!device.is_cuda()) return {};
  const auto stats = gpu_stats(device);
  earlier_peak(device) = gpu_peak(device, stats);
  c10::getDeviceAllocator(c10::kCUDA)->resetPeakStats(device.index());
  return {stats.reserved_bytes[0].current, stats.allocated_bytes[0].peak};
}

MemoryUse memory_use(c10::Device device) {
  if (device.is_cuda()) {
    const auto stats = gpu_stats(device);
    return {stats.allocated_bytes[0].current, gpu_peak(device, stats)};
  }
  return {status_bytes("VmRSS"), status_bytes("VmHWM")};
}

void reset_peak_memory(c10::Device device) {
  if (device.is_cuda()) {
    c10::getDeviceAllocator(c10::kCUDA)->resetPeakStats(device.index());
    earlier_peak(device) = 0;
  } else {
    reset_host_peak();
    std::ofstream("/proc/self/clear_refs") << "5";  // resets VmHWM
  }
}

void empty_cache(c10::Device device) {
  if (device.is_cuda()) c10::getDeviceAllocator(c10::kCUDA)->emptyCache();
}

// By default glibc raises this threshold to 32 MB, and then buffers of changing sizes fragment its heap.
void return_large_blocks() { mallopt(M_MMAP_THRESHOLD, 1 << 20); }

void set_up_cpu(int64_t threads) {
  install_host_allocator();
  return_large_blocks();
  // Softmax and its gradients are full of numbers below 1e-38, and matrix products of these are up to five
  // times slower. Threads inherit the setting, so this comes before the first thread starts.
  at::globalContext().setFlushDenormal(true);
  // OpenMP has already read OMP_NUM_THREADS; without it LibTorch counts cores, not hardware threads.
  const char* const asked = std::getenv("OMP_NUM_THREADS");
  const bool from_environment = threads == 0 && asked != nullptr && *asked != '\0';
  const char* const key = from_environment ? "OMP_NUM_THREADS" : "training.num_threads";
  if (!from_environment) {
    const int64_t count = threads > 0 ? threads : std::max<int64_t>(std::thread::hardware_concurrency(), 1);
    // LibTorch starts threads of its own here, and waits for ever for one that could not be started.
    require_threads(count - 1, key);
    at::set_num_threads(static_cast<int>(count));
  }
  start_openmp(key);
}

MemorySummary memory_summary(c10::Device device) {
  MemorySummary out;
  out.device = device;
  out.resident = status_bytes("VmRSS");
  if (device.is_cuda()) {
    const auto stats = gpu_stats(device);
    out.allocated = stats.allocated_bytes[0].current;
    out.reserved = stats.reserved_bytes[0].current;
    out.peak = gpu_peak(device, stats);
  } else {
    const HostMemory host = host_memory();
    out.allocated = host.in_use;
    out.reserved = host.in_use + host.kept;
    out.peak = host.peak;
  }
  out.limit = limit_in_force(device).value_or(0);
  return out;
}

std::string MemorySummary::text() const {
  std::vector<std::string> parts{concat("allocated ", bytes_string(allocated)),
                                 concat("reserved ", bytes_string(reserved)),
                                 concat("peak ", bytes_string(peak))};
  if (limit > 0) parts.back() += concat(", ", std::llround(100 * share()), " % of ", bytes_string(limit));
  if (device.is_cpu()) parts.push_back(concat("resident ", bytes_string(resident)));
  return join(parts);
}

int64_t allocator_retries(c10::Device device) {
  if (!device.is_cuda()) return 0;
  return gpu_stats(device).num_alloc_retries;
}

bool ThrashWatch::after_step() {
  constexpr int64_t kSteps = 3;
  const int64_t now = retries_();
  const bool grew = now > std::exchange(last_, now);
  steps_in_a_row_ = grew ? steps_in_a_row_ + 1 : 0;
  if (steps_in_a_row_ < kSteps) return false;
  steps_in_a_row_ = 0;
  return true;
}

}  // namespace trainer
