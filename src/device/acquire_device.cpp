#include "trainer/device/acquire_device.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/device/device.h"

#include "device/gpu_wait.h"
#include "device/rank_device.h"

namespace trainer {
namespace {

constexpr int kAny = -1;
// A start that takes longer is not waited for: it may be reading its data for the first time.
constexpr double kMostSecondsForAStart = 600;

// Returns N of "cuda:N", or kAny for "auto" and "cuda".
int index_of(const std::string& wanted) {
  if (wanted == "auto" || wanted == "cuda") return kAny;
  int index = kAny;
  const std::string number = wanted.starts_with("cuda:") ? wanted.substr(5) : "";
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  if (number.empty() || error != std::errc() || end != number.data() + number.size() || index < 0)
    throw ConfigError(concat("device: '", wanted, "' is none of auto, cpu, cuda, cuda:N"));
  return index;
}

DeviceLease lease(int index, std::shared_ptr<const GpuLock> lock, std::shared_ptr<const GpuLock> start) {
  return {{c10::kCUDA, static_cast<c10::DeviceIndex>(index)}, std::move(lock), std::move(start)};
}

// One search for a GPU, which may need several attempts.
class Search {
 public:
  Search(const std::string& wanted, const GpuConfig& config, const Machine& machine)
      : wanted_(wanted),
        config_(config),
        machine_(machine),
        index_(index_of(wanted)),
        needed_(config.min_gpu_memory_mb * 1'000'000),
        begin_(machine.seconds()) {}

  void exclude(int index) { excluded_ = index; }

  bool has_unusable_gpus() const { return sight_.fails || !sight_.visible().empty(); }

  // Why there are no GPUs to choose from, or "".
  std::string nothing_to_choose() {
    sight_ = machine_.gpus.look();
    if (sight_.visible().empty()) return sight_.why_none.empty() ? "no GPU" : sight_.why_none;
    return machine_.open_cuda();
  }

  DeviceLease take() {
    check_index();
    for (;;) {
      if (auto taken = take_unlocked()) return *taken;
      if (config_.wait_for_gpu) {
        check_possible();
        wait();
      } else if (auto shared = take_without_lock()) {
        return *shared;
      }
      sight_ = machine_.gpus.look();
    }
  }

  // Returns the best GPU that qualifies and is not locked.
  std::optional<DeviceLease> take_unlocked() {
    holders_.clear();
    for (const Gpu& gpu : qualified()) {
      GpuLock::Attempt attempt = GpuLock::try_take(machine_.lock_directory, gpu.uuid);
      if (!attempt.problem.empty()) say_once(attempt.problem);
      if (attempt.holder.empty()) return lease(gpu.index, std::move(attempt.lock), try_start(gpu).lock);
      holders_.emplace_back(gpu.uuid, attempt.holder);
    }
    return std::nullopt;
  }

 private:
  std::vector<Gpu> candidates() const {
    std::vector<Gpu> out = sight_.visible();
    std::erase_if(out, [&](const Gpu& gpu) {
      return (index_ != kAny && gpu.index != index_) || gpu.index == excluded_;
    });
    return out;
  }

  // Most free memory first.
  std::vector<Gpu> qualified() const {
    std::vector<Gpu> out = candidates();
    std::erase_if(out, [&](const Gpu& gpu) { return !gpu.problem.empty() || gpu.free < needed_; });
    std::ranges::stable_sort(out, std::ranges::greater(), &Gpu::free);
    return out;
  }

  void check_index() const {
    const auto count = static_cast<int>(sight_.visible().size());
    if (index_ < count) return;
    throw DeviceError(
        concat("device: ", wanted_, ": this machine shows ", count, " GPU(s), cuda:0 to cuda:", count - 1));
  }

  GpuLock::Attempt try_start(const Gpu& gpu) const {
    return GpuLock::try_take(machine_.lock_directory, name_of_start(gpu.uuid));
  }

  // GPUs can be shared: without gpu.wait_for_gpu, a GPU that another run has locked is accepted. While
  // another run is starting on it, returns nothing after a pause: what it leaves free is not known yet.
  std::optional<DeviceLease> take_without_lock() {
    const std::vector<Gpu> gpus = qualified();
    if (gpus.empty()) {
      throw DeviceError(
          concat("device: ", wanted_, ": there is no ", what_is_wanted(), ":", what_is_seen("\n  "),
                 "\nWait for one with gpu.wait_for_gpu=true, lower gpu.min_gpu_memory_mb, or use "
                 "device=cpu."));
    }
    const Gpu& gpu = gpus.front();
    GpuLock::Attempt start = try_start(gpu);
    if (!start.holder.empty() && machine_.seconds() - begin_ < kMostSecondsForAStart) {
      await_start(gpu, start.holder);
      return std::nullopt;
    }
    machine_.say(concat("cuda:", gpu.index, " is also used by another run, ", holder_of(gpu)));
    return lease(gpu.index, nullptr, std::move(start.lock));
  }

  void await_start(const Gpu& gpu, const std::string& holder) {
    if (!std::exchange(said_start_, true)) {
      machine_.say(concat("cuda:", gpu.index, ": ", holder, " is starting on it; waiting for up to ",
                          duration_string(kMostSecondsForAStart), " until it has taken its memory"));
    }
    pause(1);
  }

  void pause(double seconds) const {
    if (machine_.sleep(seconds)) return;
    throw Error(ExitCode::interrupted,
                "stopped by a signal while waiting for a GPU; nothing was started, run the same command to "
                "wait again");
  }

  void check_possible() const {
    const std::vector<Gpu> gpus = candidates();
    const bool possible = std::ranges::any_of(
        gpus, [&](const Gpu& gpu) { return !gpu.problem.empty() || gpu.total >= needed_; });
    if (possible) return;
    throw DeviceError(concat("device: ", wanted_, ": there will be no ", what_is_wanted(),
                             ", even when nobody uses it:", what_is_seen("\n  "),
                             "\nLower gpu.min_gpu_memory_mb, or use device=cpu."));
  }

  void wait() {
    const double limit = config_.gpu_wait_timeout_minutes * 60, waited = machine_.seconds() - begin_;
    if (waited >= limit) {
      throw DeviceError(
          concat("device: ", wanted_, ": there was no ", what_is_wanted(), " within ", duration_string(limit),
                 ":", what_is_seen("\n  "),
                 "\nWait longer (gpu.gpu_wait_timeout_minutes), lower gpu.min_gpu_memory_mb, or "
                 "use device=cpu."));
    }
    const double seconds = std::min(config_.gpu_check_interval_seconds, limit - waited);
    machine_.say(concat("waiting for ", index_ == kAny ? "a " : "", what_is_wanted(), ": ",
                        what_is_seen("; "), "; next look in ", duration_string(seconds), ", for ",
                        duration_string(limit - waited), " more"));
    pause(seconds);
  }

  std::string what_is_wanted() const {
    const std::string which = index_ == kAny ? "GPU" : concat("cuda:", index_);
    return needed_ > 0 ? concat(which, " with ", bytes_string(needed_), " free")
                       : concat(which, " that is free");
  }

  std::string holder_of(const Gpu& gpu) const {
    for (const auto& [uuid, holder] : holders_) {
      if (uuid == gpu.uuid) return holder;
    }
    return "";
  }

  // Lists the GPUs, each after `separator`; a list in one line has it only between them.
  std::string what_is_seen(const std::string& separator) const {
    std::vector<std::string> texts;
    for (const Gpu& gpu : candidates()) {
      const std::string holder = holder_of(gpu);
      texts.push_back(holder.empty() ? gpu.text() : concat(gpu.text(), ", taken by ", holder));
    }
    return (separator.front() == '\n' ? separator : "") + join(texts, separator);
  }

  void say_once(const std::string& problem) {
    if (std::exchange(said_, true)) return;
    machine_.say(concat("GPUs cannot be locked, so another run may take the same one: ", problem));
  }

  std::string wanted_;
  const GpuConfig& config_;
  const Machine& machine_;
  int index_, excluded_ = kAny;
  int64_t needed_;
  double begin_;
  GpuSight sight_;
  std::vector<std::pair<std::string, std::string>> holders_;  // UUID, who
  bool said_ = false, said_start_ = false;
};

}  // namespace

const Machine& this_machine() {
  static const Machine machine{
      system_gpus(),
      [] { return open_cuda(); },
      gpu_lock_directory(),
      [] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
      },
      interruptible_sleep,
      [](const std::string& line) { log::info(line); },
      [](const std::string& line) { log::warning(line); },
  };
  return machine;
}

DeviceLease acquire_device(const std::string& wanted, const GpuConfig& config, const Machine& machine) {
  if (wanted == "cpu") return {};
  Search search(wanted, config, machine);
  const std::string nothing = search.nothing_to_choose();
  if (nothing.empty()) return search.take();
  if (wanted != "auto")
    throw DeviceError(concat("device: ", wanted, ": ", nothing, ". Use device=cpu or device=auto."));
  // Without any GPU everybody expects the CPU. Where there is one, hours on the CPU must not come as a
  // surprise.
  if (search.has_unusable_gpus()) {
    machine.warn(concat("using the CPU, which is far slower: ", nothing,
                        ". device=cpu takes the CPU without this warning, device=cuda ends instead"));
  } else if (config.wait_for_gpu) {
    machine.say(concat("using the CPU: ", nothing));
  }
  return {};
}

std::optional<DeviceLease> acquire_other_gpu(c10::Device taken, const GpuConfig& config,
                                             const Machine& machine) {
  Search search("cuda", config, machine);
  if (taken.is_cuda()) search.exclude(taken.index());
  if (!search.nothing_to_choose().empty()) return std::nullopt;
  return search.take_unlocked();
}

c10::Device find_best_device(int64_t min_free_bytes, const Machine& machine) {
  std::vector<Gpu> gpus = machine.gpus.look().visible();
  std::erase_if(gpus, [&](const Gpu& gpu) { return !gpu.problem.empty() || gpu.free < min_free_bytes; });
  const auto best = std::ranges::max_element(gpus, {}, &Gpu::free);
  if (best == gpus.end() || !machine.open_cuda().empty()) return c10::kCPU;
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(best->index)};
}

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
