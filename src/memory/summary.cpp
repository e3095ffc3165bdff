#include "trainer/memory/summary.h"

#include <cmath>
#include <fstream>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>

#include "trainer/base/strings.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/memory/limit.h"

namespace trainer {
namespace {

// Returns the line "VmRSS:   1234 kB" of /proc/self/status in bytes.
int64_t resident_bytes() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

}  // namespace

MemorySummary memory_summary(c10::Device device) {
  MemorySummary out;
  out.device = device;
  out.resident = resident_bytes();
  if (device.is_cuda()) {
    const auto stats = c10::getDeviceAllocator(c10::kCUDA)->getDeviceStats(device.index());
    out.allocated = stats.allocated_bytes[0].current;
    out.reserved = stats.reserved_bytes[0].current;
    out.peak = stats.allocated_bytes[0].peak;
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

}  // namespace trainer
