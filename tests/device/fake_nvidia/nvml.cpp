// A libnvidia-ml.so.1 for tests: three GPUs, the first divided into two MIG instances, the third in use.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace {
struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
struct Fake {
  const char *name, *uuid;
  unsigned long long free;
  bool in_use;
};
const Fake kGpus[] = {{"First", "GPU-01111111-1111-1111-1111-000000000000", 0, false},
                      {"Second", "GPU-02222222-2222-2222-2222-222222222222", 7'000'000'000, false},
                      {"Third", "GPU-03333333-3333-3333-3333-333333333333", 2'000'000'000, true}};
const Fake kInstances[] = {{"First MIG 1", "MIG-01111111-1111-1111-1111-111111111111", 9'000'000'000, false},
                           {"First MIG 2", "MIG-01111111-1111-1111-1111-222222222222", 9'000'000'000, false}};

int copy(char* to, unsigned size, const char* text) { return std::snprintf(to, size, "%s", text), 0; }
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return copy(text, size, "580.65.06"); }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 3, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const Fake** device) { return *device = &kGpus[index], 0; }
int nvmlDeviceGetName(const Fake* device, char* text, unsigned size) {
  return copy(text, size, device->name);
}
int nvmlDeviceGetUUID(const Fake* device, char* text, unsigned size) {
  return copy(text, size, device->uuid);
}
int nvmlDeviceGetMemoryInfo(const Fake* device, Memory* memory) {
  const char* said = std::getenv("FAKE_NVML_FREE");  // of every GPU
  const unsigned long long free = said == nullptr ? device->free : std::strtoull(said, nullptr, 10);
  *memory = {24'000'000'000, free, 24'000'000'000 - free};
  return 0;
}
int nvmlDeviceGetMigMode(const Fake* device, unsigned* now, unsigned* pending) {
  *now = *pending = device == kGpus && std::getenv("FAKE_NVML_NO_MIG") == nullptr ? 1 : 0;
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, const Fake** device) {
  constexpr int kNotFound = 6;
  for (const Fake& gpu : kGpus)
    if (std::strcmp(gpu.uuid, uuid) == 0) return *device = &gpu, 0;
  for (const Fake& instance : kInstances)
    if (std::strcmp(instance.uuid, uuid) == 0) return *device = &instance, 0;
  return kNotFound;
}
int nvmlDeviceGetP2PStatus(const Fake*, const Fake*, int capability, int* status) {
  constexpr int kNvlink = 2, kNotSupported = 3;
  *status = capability == kNvlink && std::getenv("FAKE_NVLINK") != nullptr ? 0 : kNotSupported;
  return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(const Fake*, const Fake*, int* level) { return *level = 30, 0; }
int nvmlDeviceGetMaxMigDeviceCount(const Fake*, unsigned* count) { return *count = 7, 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(const Fake*, unsigned index, const Fake** instance) {
  constexpr int kNotFound = 6;
  if (index % 3 != 0 || index > 3) return kNotFound;
  return *instance = &kInstances[index / 3], 0;
}
// This process itself holds the third GPU's memory, and so many more that the caller's first buffer is too
// small.
int nvmlDeviceGetComputeRunningProcesses_v3(const Fake* device, unsigned* count, Process* processes) {
  constexpr unsigned kProcesses = 100;
  constexpr int kInsufficientSize = 7;
  const unsigned room = *count;
  *count = device->in_use ? kProcesses : 0;
  if (room < *count) return kInsufficientSize;
  for (unsigned i = 0; i < *count; i++) {
    processes[i] = {i == 0 ? static_cast<unsigned>(getpid()) : 4'000'000'000U + i,
                    i == 0 ? 21'000'000'000 : ~0ULL, 0, 0};
  }
  return 0;
}
}
