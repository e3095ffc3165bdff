#include "device/gpu_links.h"

#include <chrono>
#include <deque>

#include "trainer/base/strings.h"

#include "base/dynamic_library.h"
#include "device/cuda_driver.h"
#include "device/nvml.h"

namespace trainer {
namespace {

// From cuda.h, which need not be installed.
constexpr int kNoSuchFunction = -1, kSuccess = 0;
using DevicePointer = unsigned long long;

constexpr size_t kCopied = 128'000'000;
constexpr int kCopies = 4;

template <class... Arguments>
bool succeeds(const char* name, Arguments... arguments) {
  return cuda_library().call(kNoSuchFunction, name, arguments...) == kSuccess;
}

// The primary context of a GPU, and memory there. It is the current context only inside use().
class GpuMemory {
 public:
  explicit GpuMemory(int index) {
    if (!succeeds("cuDeviceGet", &device_, index) ||
        !succeeds("cuDevicePrimaryCtxRetain", &context_, device_)) {
      context_ = nullptr;
      return;
    }
    use([&] { return succeeds("cuMemAlloc_v2", &data_, kCopied); });
  }
  ~GpuMemory() {
    if (data_ != 0) use([&] { return succeeds("cuMemFree_v2", data_); });
    if (context_ != nullptr) succeeds("cuDevicePrimaryCtxRelease_v2", device_);
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  int device() const { return device_; }
  void* context() const { return context_; }
  DevicePointer data() const { return data_; }  // 0: there is none

  template <class Work>
  bool use(const Work& work) const {
    if (context_ == nullptr || !succeeds("cuCtxPushCurrent_v2", context_)) return false;
    const bool done = work();
    void* popped = nullptr;
    succeeds("cuCtxPopCurrent_v2", &popped);
    return done;
  }

 private:
  int device_ = 0;
  void* context_ = nullptr;
  DevicePointer data_ = 0;
};

bool may_reach(const GpuMemory& from, const GpuMemory& to) {
  int may = 0;
  return succeeds("cuDeviceCanAccessPeer", &may, from.device(), to.device()) && may != 0;
}

// Copies wait for nothing but each other; the first one is not counted. 0: it failed.
double copy_rate(const GpuMemory& from, const GpuMemory& to) {
  const auto copy = [&](int times) {
    return from.use([&] {
      for (int i = 0; i < times; i++) {
        if (!succeeds("cuMemcpyPeer", to.data(), to.context(), from.data(), from.context(), kCopied))
          return false;
      }
      return succeeds("cuCtxSynchronize");
    });
  };
  if (!copy(1)) return 0;
  const auto begin = std::chrono::steady_clock::now();
  if (!copy(kCopies)) return 0;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return kCopies * static_cast<double>(kCopied) / taken.count();
}

// Without peer access the driver takes the way through main memory, even where there is a direct one.
void allow_access(const GpuMemory& from, const GpuMemory& to) {
  from.use([&] { return succeeds("cuCtxEnablePeerAccess", to.context(), 0U); });
}

void end_access(const GpuMemory& from, const GpuMemory& to) {
  from.use([&] { return succeeds("cuCtxDisablePeerAccess", to.context()); });
}

GpuLink measure_link(const Gpu& one, const Gpu& other, const GpuMemory& first, const GpuMemory& second) {
  GpuLink link;
  link.first = one.index;
  link.second = other.index;
  link.path = path_between(one.uuid, other.uuid);
  link.direct = may_reach(first, second) && may_reach(second, first);
  if (first.data() == 0 || second.data() == 0) {
    link.problem = concat("not measured: no ", bytes_string(kCopied),
                          " free on cuda:", first.data() == 0 ? link.first : link.second);
    return link;
  }
  if (link.direct) {
    allow_access(first, second);
    allow_access(second, first);
  }
  link.rate = copy_rate(first, second);
  if (link.direct) {
    end_access(first, second);
    end_access(second, first);
  }
  if (link.rate == 0) link.problem = "not measured: the driver refuses to copy";
  return link;
}

}  // namespace

std::string GpuLink::text() const {
  return concat("cuda:", first, " and cuda:", second, ": ", direct ? "direct" : "through main memory",
                path.empty() ? "" : concat(", ", path), ", ",
                problem.empty() ? concat(bytes_string(static_cast<int64_t>(rate)), "/s") : problem);
}

std::vector<GpuLink> measure_gpu_links(const std::vector<Gpu>& visible) {
  std::deque<GpuMemory> memory;
  for (const Gpu& gpu : visible) memory.emplace_back(gpu.index);
  std::vector<GpuLink> links;
  for (size_t i = 0; i < visible.size(); i++) {
    for (size_t j = i + 1; j < visible.size(); j++)
      links.push_back(measure_link(visible[i], visible[j], memory[i], memory[j]));
  }
  return links;
}

}  // namespace trainer
