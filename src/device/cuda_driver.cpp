#include "device/cuda_driver.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <torch/version.h>

#include "trainer/base/strings.h"

#include "base/dynamic_library.h"

namespace trainer {
namespace {

// Declarations from cuda.h, which need not be installed. The names include the functions' versions.
constexpr int kNoDevice = 100;
constexpr int kProcessors = 16, kCapabilityMajor = 75, kCapabilityMinor = 76;
struct Uuid {
  unsigned char bytes[16];
};

template <class... Arguments>
int call(const char* name, Arguments... arguments) {
  return cuda_library().call(kNoDriverFunction, name, arguments...);
}

// "6f2a1b3c-....-....-....-............"
std::string uuid_text(const Uuid& uuid) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < sizeof uuid.bytes; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits[uuid.bytes[i] >> 4];
    text += digits[uuid.bytes[i] & 15];
  }
  return text;
}

std::string error_name(int code) {
  const char* name = nullptr;
  if (call("cuGetErrorName", code, &name) == 0 && name != nullptr) return name;
  return concat("error ", code);
}

std::string version_text(int version) { return concat(version / 1000, ".", version % 1000 / 10); }

CudaDevice ask_device(int device) {
  CudaDevice out;
  char name[256] = "";
  call("cuDeviceGetName", name, static_cast<int>(sizeof name), device);
  out.name = name;
  Uuid uuid{};
  // For a MIG instance the first version of the function returns the UUID of its GPU.
  if (call("cuDeviceGetUuid_v2", &uuid, device) != 0) call("cuDeviceGetUuid", &uuid, device);
  out.uuid = uuid_text(uuid);
  size_t total = 0;
  call("cuDeviceTotalMem_v2", &total, device);
  out.total = static_cast<int64_t>(total);
  call("cuDeviceGetAttribute", &out.major, kCapabilityMajor, device);
  call("cuDeviceGetAttribute", &out.minor, kCapabilityMinor, device);
  call("cuDeviceGetAttribute", &out.processors, kProcessors, device);
  return out;
}

std::string hidden_by_environment() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? "" : concat(" (CUDA_VISIBLE_DEVICES is '", visible, "')");
}

CudaDriver ask_driver() {
  CudaDriver out;
  if (!cuda_library().is_open()) {
    out.why_none = "no NVIDIA driver on this machine";
    return out;
  }
  if (call("cuDriverGetVersion", &out.cuda) == 0) out.version = version_text(out.cuda);
  const int failed = call("cuInit", 0U);
  int count = 0;
  if (failed != 0 && failed != kNoDevice) {
    out.why_none = concat("the NVIDIA driver does not start: ", error_name(failed),
                          "; nvidia-smi may say more, and a driver that was just updated needs a reboot");
    out.fails = true;
  } else if (failed != 0 || call("cuDeviceGetCount", &count) != 0 || count == 0) {
    out.why_none = "the NVIDIA driver shows no GPU" + hidden_by_environment();
  }
  for (int i = 0; i < count; i++) {
    int device = 0;
    out.devices.push_back(call("cuDeviceGet", &device, i) == 0 ? ask_device(device) : CudaDevice{});
  }
  return out;
}

}  // namespace

std::string driver_problem(int code, const char* what) {
  if (code == 0) return "";
  return concat("CUDA: ", what, ": ",
                code == kNoDriverFunction ? "no such function in the driver" : error_name(code));
}

const DynamicLibrary& cuda_library() {
  static const DynamicLibrary opened("libcuda.so.1");
  return opened;
}

const CudaDriver& cuda_driver() {
  static const CudaDriver driver = ask_driver();
  return driver;
}

std::string why_too_old(int driver_cuda, int needed_cuda, const std::string& driver) {
  constexpr std::pair<int, int> first_drivers[] = {{11, 450}, {12, 525}, {13, 580}};
  const int major = needed_cuda / 1000;
  if (driver_cuda == 0 || driver_cuda / 1000 >= major) return "";
  std::string newer = "a newer driver";
  for (const auto& [cuda, first] : first_drivers) {
    if (cuda == major) newer = concat("driver ", first, " or newer");
  }
  return concat("the NVIDIA driver", driver.empty() ? "" : " ", driver, " runs CUDA up to ",
                version_text(driver_cuda), ", and this LibTorch needs CUDA ", version_text(needed_cuda),
                ": install ", newer, ", or a LibTorch for CUDA ", driver_cuda / 1000);
}

std::optional<FreeMemory> memory_by_context(int index) {
  int device = 0;
  void *context = nullptr, *popped = nullptr;
  if (call("cuDeviceGet", &device, index) != 0) return std::nullopt;
  if (call("cuDevicePrimaryCtxRetain", &context, device) != 0) return std::nullopt;
  size_t free = 0, total = 0;
  bool answered = false;
  if (call("cuCtxPushCurrent_v2", context) == 0) {
    answered = call("cuMemGetInfo_v2", &free, &total) == 0;
    call("cuCtxPopCurrent_v2", &popped);
  }
  call("cuDevicePrimaryCtxRelease_v2", device);
  if (!answered) return std::nullopt;
  return FreeMemory{static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

namespace {

constexpr unsigned kForAllContexts = 1, kMapped = 2;  // CU_MEMHOSTALLOC_PORTABLE, _DEVICEMAP

// Calls `work` in the GPU's primary context, which LibTorch uses too. Returns its result, or that of a call
// that failed before.
template <class Work>
int in_context_of(int gpu, const Work& work) {
  int device = 0;
  void *context = nullptr, *popped = nullptr;
  if (const int failed = call("cuDeviceGet", &device, gpu); failed != 0) return failed;
  if (const int failed = call("cuDevicePrimaryCtxRetain", &context, device); failed != 0) return failed;
  int result = call("cuCtxPushCurrent_v2", context);
  if (result == 0) {
    result = work();
    call("cuCtxPopCurrent_v2", &popped);
  }
  call("cuDevicePrimaryCtxRelease_v2", device);
  return result;
}

}  // namespace

void* allocate_pinned(size_t bytes, int gpu) {
  void* data = nullptr;
  const int failed =
      in_context_of(gpu, [&] { return call("cuMemHostAlloc", &data, bytes, kForAllContexts | kMapped); });
  if (failed != 0 || data == nullptr) return nullptr;
  return std::memset(data, 0, bytes);
}

void free_pinned(void* data, int gpu) {
  in_context_of(gpu, [&] { return call("cuMemFreeHost", data); });
}

namespace {

// Returns the pip command of the environment that has this torch: ENV/lib/python3.11/site-packages/torch has
// ENV/bin/python3. "" if that is no folder of Python's.
std::string pip_beside(const std::filesystem::path& torch) {
  const std::filesystem::path packages = torch.parent_path();
  if (!packages.filename().string().ends_with("-packages")) return "";
  return (packages.parent_path().parent_path().parent_path() / "bin/python3").string() + " -m pip install";
}

}  // namespace

std::string how_to_get_cuda(const std::filesystem::path& torch, bool has_setup) {
  if (has_setup) return "scripts/setup --full installs one that has it";
  const std::string version = concat(TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR);
  // --force-reinstall because the torch without CUDA has the right version.
  if (const std::string pip = pip_beside(torch); !pip.empty())
    return concat("run: ", pip, " --force-reinstall 'torch==", version, ".*'");
  return concat("set TORCH_DIR to the folder of a LibTorch ", version, " that has it");
}

std::string how_to_get_nvrtc(const std::filesystem::path& torch, bool has_setup, int cuda) {
  if (has_setup) return "scripts/setup --full installs it";
  const int major = cuda / 1000, minor = cuda % 1000 / 10;
  const std::string version = concat(major, ".", minor);
  if (const std::string pip = pip_beside(torch); !pip.empty()) {
    return concat("run: ", pip, " --force-reinstall 'nvidia-cuda-nvrtc",
                  major < 13 ? concat("-cu", major) : "", "==", version, ".*'");
  }
  return concat("install libnvrtc of CUDA ", version, " where the system finds it");
}

}  // namespace trainer
