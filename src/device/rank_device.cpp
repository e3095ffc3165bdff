#include "device/rank_device.h"

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {

std::string device_of_rank(const std::string& wanted, const RankPlace& place, const Machine& machine) {
  if (place.local_count == 1 || wanted == "cpu") return wanted;
  const auto usable = static_cast<int64_t>(machine.gpus.look().visible().size());
  const bool is_one_of_several = wanted != "auto" && wanted != "cuda" && !(usable == 1 && wanted == "cuda:0");
  if (is_one_of_several) {
    throw ConfigError(
        concat("device: ", wanted, ": it is one GPU for ", place.local_count,
               " processes of this machine, and each takes one of its own; write device: cuda"));
  }
  if (usable == 0) return wanted;
  if (usable == 1) return "cuda:0";
  if (place.local_rank >= usable) {
    throw DeviceError(concat("this machine shows ", usable, " GPUs to ", place.local_count,
                             " processes, and each takes one of its own; start at most ", usable,
                             " processes on it"));
  }
  return concat("cuda:", place.local_rank);
}

std::string gpu_behind(const std::string& device, const Machine& machine) {
  if (device == "cpu") return "";
  const std::vector<Gpu> gpus = machine.gpus.look().visible();
  for (const Gpu& gpu : gpus)
    if (device == concat("cuda:", gpu.index) || gpus.size() == 1) return concat(gpu.name, " ", gpu.uuid);
  return "";
}

}  // namespace trainer
