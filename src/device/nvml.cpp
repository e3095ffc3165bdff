#include "device/nvml.h"

#include <algorithm>
#include <fstream>
#include <pwd.h>
#include <sys/stat.h>

#include "trainer/base/strings.h"

#include "base/dynamic_library.h"

namespace trainer {
namespace {

// Declarations from nvml.h, which need not be installed.
constexpr int kNoNvmlFunction = -1;
constexpr int kInsufficientSize = 7;
constexpr unsigned long long kNotAvailable = ~0ULL;
using Device = void*;
struct Memory {
  unsigned long long total, free, used;
};
struct Process {  // nvmlProcessInfo_t of the functions that end in _v3
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance, compute_instance;
};
static_assert(sizeof(Memory) == 24 && sizeof(Process) == 24);

const DynamicLibrary& nvml_library() {
  static const DynamicLibrary opened("libnvidia-ml.so.1");
  return opened;
}

template <class... Arguments>
int nvml_call(const char* name, Arguments... arguments) {
  return nvml_library().call(kNoNvmlFunction, name, arguments...);
}

bool is_ready() {
  static const bool ready = nvml_library().is_open() && nvml_call("nvmlInit_v2") == 0;
  return ready;
}

std::string user_name(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "";
  const passwd* entry = ::getpwuid(status.st_uid);
  return entry != nullptr ? entry->pw_name : concat("user ", status.st_uid);
}

GpuProcess known_process(const Process& process) {
  GpuProcess out;
  out.pid = process.pid;
  if (process.used != kNotAvailable) out.bytes = static_cast<int64_t>(process.used);
  const std::string path = concat("/proc/", process.pid);
  std::getline(std::ifstream(path + "/comm"), out.name);
  if (!out.name.empty()) out.user = user_name(path);
  return out;
}

void add_processes(Device device, const char* function, std::vector<GpuProcess>& out) {
  std::vector<Process> processes(64);
  auto count = static_cast<unsigned int>(processes.size());
  int failed = nvml_call(function, device, &count, processes.data());
  if (failed == kInsufficientSize) {
    processes.resize(count + 64);
    count = static_cast<unsigned int>(processes.size());
    failed = nvml_call(function, device, &count, processes.data());
  }
  if (failed != 0) return;
  for (unsigned int i = 0; i < count; i++) {
    const bool known =
        std::ranges::any_of(out, [&](const GpuProcess& p) { return p.pid == processes[i].pid; });
    if (!known) out.push_back(known_process(processes[i]));
  }
}

Gpu ask_gpu(Device device) {
  Gpu out;
  char text[96] = "";
  if (nvml_call("nvmlDeviceGetName", device, text, static_cast<unsigned int>(sizeof text)) == 0)
    out.name = text;
  if (nvml_call("nvmlDeviceGetUUID", device, text, static_cast<unsigned int>(sizeof text)) == 0)
    out.uuid = text;
  Memory memory{};
  if (const int failed = nvml_call("nvmlDeviceGetMemoryInfo", device, &memory); failed != 0) {
    out.problem = concat("NVML does not report its memory (error ", failed, ")");
  }
  out.free = static_cast<int64_t>(memory.free);
  out.total = static_cast<int64_t>(memory.total);
  add_processes(device, "nvmlDeviceGetComputeRunningProcesses_v3", out.processes);
  add_processes(device, "nvmlDeviceGetGraphicsRunningProcesses_v3", out.processes);
  return out;
}

// The MIG instances of a GPU; empty if MIG is off.
std::vector<Device> instances_of(Device device) {
  unsigned int divided = 0, after_reset = 0, most = 0;
  if (nvml_call("nvmlDeviceGetMigMode", device, &divided, &after_reset) != 0 || divided == 0) return {};
  nvml_call("nvmlDeviceGetMaxMigDeviceCount", device, &most);
  std::vector<Device> instances;
  for (unsigned int i = 0; i < most; i++) {
    Device instance = nullptr;
    if (nvml_call("nvmlDeviceGetMigDeviceHandleByIndex", device, i, &instance) == 0)
      instances.push_back(instance);
  }
  return instances;
}

// nvmlGpuTopologyLevel_t
std::string topology_text(int level) {
  switch (level) {
    case 0:
      return "one board";
    case 10:
      return "one PCIe switch";
    case 20:
      return "several PCIe switches";
    case 30:
      return "the PCIe host bridge";
    case 40:
      return "PCIe host bridges of one processor";
    case 50:
      return "the connection between processors";
    default:
      return "";
  }
}

}  // namespace

std::string path_between(const std::string& uuid, const std::string& other) {
  constexpr int kByNvlink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK
  Device first = nullptr, second = nullptr;
  if (!is_ready() || nvml_call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &first) != 0 ||
      nvml_call("nvmlDeviceGetHandleByUUID", other.c_str(), &second) != 0)
    return "";
  int status = -1, level = -1;  // a status of 0 is OK
  if (nvml_call("nvmlDeviceGetP2PStatus", first, second, kByNvlink, &status) == 0 && status == 0)
    return "NVLink";
  nvml_call("nvmlDeviceGetTopologyCommonAncestor", first, second, &level);
  return topology_text(level);
}

std::string nvml_driver_version() {
  char version[96] = "";
  const bool known = is_ready() && nvml_call("nvmlSystemGetDriverVersion", version,
                                             static_cast<unsigned int>(sizeof version)) == 0;
  return known ? version : "";
}

NvmlSight look_with_nvml() {
  NvmlSight out;
  if (!is_ready()) return out;
  out.driver = nvml_driver_version();
  unsigned int count = 0;
  if (nvml_call("nvmlDeviceGetCount_v2", &count) != 0) return out;
  for (unsigned int i = 0; i < count; i++) {
    Device device = nullptr;
    if (nvml_call("nvmlDeviceGetHandleByIndex_v2", i, &device) != 0) continue;
    const std::vector<Device> instances = instances_of(device);
    for (Device instance : instances) out.gpus.push_back(ask_gpu(instance));
    if (instances.empty()) out.gpus.push_back(ask_gpu(device));
  }
  return out;
}

}  // namespace trainer
