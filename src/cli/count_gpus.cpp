#include "cli/count_gpus.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "trainer/base/strings.h"

#include "base/dynamic_library.h"

namespace trainer::cli {
namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

// NVIDIA's management library (docs.nvidia.com/deploy/nvml-api), which comes with the driver.
const DynamicLibrary& management_library() {
  static const DynamicLibrary opened("libnvidia-ml.so.1");
  return opened;
}

template <class... Arguments>
bool ask_nvml(const char* name, Arguments... arguments) {
  return management_library().call(/*missing=*/-1, name, arguments...) == 0;
}

// Nothing if there is no driver.
std::optional<int64_t> gpus_of_machine() {
  unsigned int count = 0;
  if (!ask_nvml("nvmlInit_v2") || !ask_nvml("nvmlDeviceGetCount_v2", &count)) return std::nullopt;
  return count;
}

struct FreeGpu {
  std::string uuid;
  unsigned long long free;
};

// Nothing if its memory is not known, and for one that is divided into instances (MIG).
std::optional<FreeGpu> free_gpu(unsigned int index) {
  struct {
    unsigned long long total, free, used;
  } memory{};
  void* device = nullptr;
  std::array<char, 96> uuid{};
  unsigned int divided = 0, after_reset = 0;
  const bool known =
      ask_nvml("nvmlDeviceGetHandleByIndex_v2", index, &device) &&
      ask_nvml("nvmlDeviceGetUUID", device, uuid.data(), static_cast<unsigned int>(uuid.size())) &&
      ask_nvml("nvmlDeviceGetMemoryInfo", device, &memory);
  const bool is_divided = ask_nvml("nvmlDeviceGetMigMode", device, &divided, &after_reset) && divided != 0;
  if (!known || is_divided) return std::nullopt;
  return FreeGpu{uuid.data(), memory.free};
}

bool names_gpu(std::string_view entry, int64_t count) {
  if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) return true;
  int64_t index = -1;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  return error == std::errc{} && end == entry.data() + entry.size() && index >= 0 && index < count;
}

// The first entry that names no GPU hides those after it.
int64_t gpus_in_list(std::string_view list, int64_t count) {
  int64_t named = 0;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (!names_gpu(list.substr(0, comma), count)) break;
    named++;
    list = comma == std::string_view::npos ? "" : list.substr(comma + 1);
  }
  return named;
}

std::string gpus_text(int64_t count) { return count == 1 ? "1 GPU" : concat(count, " GPUs"); }

}  // namespace

GpuCount count_gpus() {
  const std::optional<int64_t> there_are = gpus_of_machine();
  if (!there_are) return {0, "this machine has no NVIDIA driver (libnvidia-ml.so.1)"};
  const char* list = std::getenv(kVisible);
  if (list == nullptr) return {*there_are, concat("this machine shows ", gpus_text(*there_are))};
  const int64_t left = gpus_in_list(list, *there_are);
  return {left, concat(kVisible, "=", list, " leaves ", left, " of ", gpus_text(*there_are))};
}

std::string freest_gpus(int64_t count) {
  if (std::getenv(kVisible) != nullptr) return "";
  std::vector<FreeGpu> gpus;
  for (int64_t index = 0; index < gpus_of_machine().value_or(0); index++) {
    const std::optional<FreeGpu> gpu = free_gpu(static_cast<unsigned int>(index));
    if (!gpu) return "";
    gpus.push_back(*gpu);
  }
  std::ranges::stable_sort(gpus, std::ranges::greater(), &FreeGpu::free);
  std::vector<std::string> uuids;
  for (const FreeGpu& gpu : gpus) {
    if (std::ssize(uuids) < count) uuids.push_back(gpu.uuid);
  }
  return join(uuids, ",");
}

}  // namespace trainer::cli
