#include "trainer/device/gpu_probe.h"

#include <algorithm>

#include "trainer/base/strings.h"

#include "device/nvml.h"

namespace trainer {
namespace {

constexpr size_t kShownProcesses = 3;

std::string process_text(const GpuProcess& process) {
  std::string text = process.name.empty() ? concat("process ", process.pid)
                     : process.user.empty()
                         ? concat(process.name, ", process ", process.pid)
                         : concat(process.name, " of ", process.user, ", process ", process.pid);
  return process.bytes ? concat(text, ": ", bytes_string(*process.bytes)) : text;
}

std::string processes_text(std::vector<GpuProcess> processes) {
  std::ranges::stable_sort(processes, std::ranges::greater(),
                           [](const GpuProcess& p) { return p.bytes.value_or(0); });
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(processes.size(), kShownProcesses); i++)
    texts.push_back(process_text(processes[i]));
  if (processes.size() > kShownProcesses)
    texts.push_back(concat(processes.size() - kShownProcesses, " more"));
  return join(texts, "; ");
}

std::string bare(const std::string& uuid) {
  return uuid.substr(std::min<size_t>(uuid.find('-') + 1, uuid.size()));
}

class SystemGpus final : public GpuProbe {
 public:
  GpuSight look() override { return combine_sight(cuda_driver(), look_with_nvml(), memory_by_context); }
};

}  // namespace

std::string Gpu::text() const {
  const std::string device = index >= 0 ? concat("cuda:", index) : "hidden";
  const std::string start = concat(device, " ", name.empty() ? "GPU" : name);
  if (!problem.empty()) return concat(start, ", ", problem);
  const std::string memory = concat(start, ", ", bytes_string(free), " free of ", bytes_string(total));
  return processes.empty() ? memory : concat(memory, " (", processes_text(processes), ")");
}

std::vector<Gpu> GpuSight::visible() const {
  std::vector<Gpu> out;
  std::ranges::copy_if(gpus, std::back_inserter(out), [](const Gpu& gpu) { return gpu.index >= 0; });
  return out;
}

GpuSight combine_sight(const CudaDriver& driver, const NvmlSight& nvml,
                       const std::function<std::optional<FreeMemory>(int index)>& ask_driver) {
  GpuSight out{{}, driver.why_none, driver.fails, nvml.driver, driver.version};
  std::vector<Gpu> hidden = nvml.gpus;
  for (size_t i = 0; i < driver.devices.size(); i++) {
    const CudaDevice& device = driver.devices[i];
    Gpu gpu;
    const auto same = std::ranges::find_if(hidden, [&](const Gpu& g) { return bare(g.uuid) == device.uuid; });
    if (same != hidden.end()) {
      gpu = *same;
      hidden.erase(same);
    } else {
      gpu.uuid = "GPU-" + device.uuid;
      gpu.problem = "its memory is not known";
    }
    gpu.index = static_cast<int>(i);
    gpu.major = device.major;
    gpu.minor = device.minor;
    if (gpu.name.empty()) gpu.name = device.name;
    if (!gpu.problem.empty()) {
      if (const auto memory = ask_driver(gpu.index)) {
        gpu.problem.clear();
        gpu.free = memory->free;
        gpu.total = memory->total;
      }
    }
    out.gpus.push_back(std::move(gpu));
  }
  out.gpus.insert(out.gpus.end(), hidden.begin(), hidden.end());
  return out;
}

GpuProbe& system_gpus() {
  static SystemGpus gpus;
  return gpus;
}

}  // namespace trainer
