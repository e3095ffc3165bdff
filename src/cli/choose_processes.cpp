#include "cli/choose_processes.h"

#include <charconv>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "cli/count_gpus.h"

namespace trainer::cli {
namespace {

constexpr int64_t kMostProcesses = 1024;

CountOrAll gpus_of(const std::string& text) {
  if (text == "all") return CountOrAll::all();
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{} || end != text.data() + text.size() || count < 1 || count > kMostProcesses)
    throw ConfigError(concat("--gpus ", text, ": give a number of at least 1, or all"));
  return count;
}

void refuse_under_launcher(const ProcessOptions& options, const RankPlace& place) {
  if (!options.gpus && !options.ranks) return;
  throw ConfigError(concat(options.gpus ? "--gpus: " : "--ranks: ", place.launcher,
                           " has started the processes already, this one is rank ", place.rank, " of ",
                           place.count, "; leave the option out",
                           options.ranks ? " and write device=cpu" : ""));
}

int64_t ranks_on_cpu(int64_t ranks, Config& config) {
  if (ranks < 1 || ranks > kMostProcesses)
    throw ConfigError(concat("--ranks ", ranks, ": give a number from 1 to ", kMostProcesses));
  if (config.device != "auto" && config.device != "cpu")
    throw ConfigError(concat("--ranks starts processes on the CPU, and device is ", config.device,
                             "; for GPUs write --gpus ", ranks));
  config.device = "cpu";
  return ranks;
}

int64_t ranks_on_gpus(const CountOrAll& gpus, const std::string& name, Config& config) {
  if (config.device == "cpu")
    throw ConfigError(concat(name, ": device is cpu; for several processes on the CPU write --ranks N"));
  const GpuCount there_are = count_gpus();
  const int64_t count = gpus.of(there_are.usable);
  if (count > there_are.usable || count == 0)
    throw DeviceError(concat(name, ": ", there_are.text,
                             there_are.usable == 0 ? "; for processes on the CPU write --ranks N" : ""));
  if (count > 1 && config.device.starts_with("cuda:"))
    throw ConfigError(concat(name, ": device is ", config.device,
                             ", and each process takes a GPU of its own; write device=auto, and "
                             "CUDA_VISIBLE_DEVICES=0,2 to choose among them"));
  if (config.device == "auto") config.device = "cuda";  // no rank must end up on the CPU
  return count;
}

}  // namespace

int64_t choose_processes(const ProcessOptions& options, const RankPlace& place, Config& config) {
  const bool is_ours = place.launcher == "trainer";
  if (!place.launcher.empty() && !is_ours) {
    refuse_under_launcher(options, place);
    return 1;
  }
  if (options.gpus && options.ranks)
    throw ConfigError("--gpus and --ranks: give one; --ranks is for processes on the CPU");
  if (options.ranks) {
    const int64_t ranks = ranks_on_cpu(*options.ranks, config);
    return is_ours ? 1 : ranks;
  }
  const CountOrAll gpus = options.gpus ? gpus_of(*options.gpus) : config.parallel.gpus;
  if (!options.gpus && !gpus.is_all() && gpus.of(0) == 1) return 1;
  const std::string name =
      options.gpus ? concat("--gpus ", *options.gpus)
                   : concat("parallel.gpus: ", gpus.is_all() ? "all" : std::to_string(gpus.of(0)));
  const int64_t count = ranks_on_gpus(gpus, name, config);
  return is_ours ? 1 : count;
}

}  // namespace trainer::cli
