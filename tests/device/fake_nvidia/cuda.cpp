// A libcuda.so.1 for tests: a machine of three GPUs of which CUDA_VISIBLE_DEVICES shows the last and the
// first.
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace {
const char* const kUuids[] = {"\x03\x33\x33\x33\x33\x33\x33\x33\x33\x33\x33\x33\x33\x33\x33\x33",
                              "\x01\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11"};

// What a test says in the environment, else the usual.
int value_of(const char* variable, int usual) {
  const char* said = std::getenv(variable);
  return said == nullptr ? usual : std::atoi(said);
}

constexpr int kInvalidContext = 201, kOutOfMemory = 2, kNoPeerAccess = 217;
int contexts = 0;  // how often one was made the current one and not taken back
int accesses = 0;  // of a GPU to the memory of another, allowed and not ended
int may_reach() { return value_of("FAKE_PEER_ACCESS", 0); }
}  // namespace

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) { return *version = value_of("FAKE_CUDA_VERSION", 13000), 0; }
int cuDeviceGetCount(int* count) { return *count = value_of("FAKE_CUDA_DEVICES", 2), 0; }
int cuDeviceGet(int* device, int index) { return *device = index, 0; }
int cuDeviceGetName(char* name, int, int device) {
  return std::strcpy(name, device == 0 ? "Third" : "First"), 0;
}
int cuDeviceGetUuid_v2(char* uuid, int device) { return std::memcpy(uuid, kUuids[device], 16), 0; }
int cuDeviceTotalMem_v2(size_t* total, int) { return *total = 24'000'000'000, 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  return *value = attribute == 75 ? value_of("FAKE_CUDA_MAJOR", 8) : 6, 0;
}

int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &contexts, 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxPushCurrent_v2(void*) { return contexts++, 0; }
int cuCtxPopCurrent_v2(void**) { return contexts--, 0; }
// FAKE_HOST_MEMORY: the most bytes at once.
int cuMemHostAlloc(void** data, size_t bytes, unsigned) {
  if (contexts == 0) return kInvalidContext;
  if (bytes > static_cast<size_t>(value_of("FAKE_HOST_MEMORY", 1 << 30))) return kOutOfMemory;
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return std::memset(*data, 0xff, bytes), 0;
}
int cuDeviceCanAccessPeer(int* may, int, int) { return *may = may_reach(), 0; }
int cuCtxEnablePeerAccess(void*, unsigned) { return may_reach() == 0 ? kNoPeerAccess : (accesses++, 0); }
int cuCtxDisablePeerAccess(void*) { return accesses == 0 ? kNoPeerAccess : (accesses--, 0); }
int cuCtxSynchronize() { return contexts == 0 ? kInvalidContext : 0; }
// FAKE_DEVICE_MEMORY: the most bytes at once.
int cuMemAlloc_v2(unsigned long long* data, size_t bytes) {
  if (contexts == 0) return kInvalidContext;
  if (bytes > static_cast<size_t>(value_of("FAKE_DEVICE_MEMORY", 1 << 30))) return kOutOfMemory;
  return *data = reinterpret_cast<unsigned long long>(std::malloc(bytes)), 0;
}
int cuMemFree_v2(unsigned long long data) {
  return contexts == 0 ? kInvalidContext : (std::free(reinterpret_cast<void*>(data)), 0);
}
// Between GPUs that may reach each other, both must be allowed to.
int cuMemcpyPeer(unsigned long long to, void*, unsigned long long from, void*, size_t bytes) {
  if (contexts == 0 || accesses != 2 * may_reach()) return kInvalidContext;
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), 0;
}
int cuMemFreeHost(void* data) { return contexts == 0 ? kInvalidContext : (std::free(data), 0); }
}
