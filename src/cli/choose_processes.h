// Whether `trainer train` starts several processes, and on which device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/base/rank_place.h"
#include "trainer/config/config.h"

namespace trainer::cli {

struct ProcessOptions {
  std::optional<std::string> gpus;  // "4", "all"
  std::optional<int64_t> ranks;
};

// Returns how many processes to start; 1: this one trains. Settles config.device if the options do, also in
// the processes that were started. Throws ConfigError when options, configuration and launcher contradict
// each other, and DeviceError when there are fewer GPUs.
int64_t choose_processes(const ProcessOptions& options, const RankPlace& place, Config& config);

}  // namespace trainer::cli
