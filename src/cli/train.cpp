// trainer train --config FILE [key=value ...]
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sched.h>
#include <sstream>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/rank_place.h"
#include "trainer/base/stop_signals.h"
#include "trainer/base/strings.h"
#include "trainer/config/config.h"
#include "trainer/config/load.h"

#include "base/ending.h"
#include "cli/commands.h"
#include "cli/count_gpus.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"
#include "cli/watch_ranks.h"

namespace trainer::cli {
namespace {

// trainer train --gpus N, --ranks N: starts the processes of a run on this machine.

struct RanksToStart {
  int64_t count = 2;
  bool share_cores = true;   // each computes on its share of the cores: the user has set no number of threads
  std::string visible_gpus;  // CUDA_VISIBLE_DEVICES; "": as it is
  double patience = 600;     // seconds that those told to stop get for saving
};

using Texts = std::vector<std::string>;

constexpr const char* kOwnProgram = "/proc/self/exe";
constexpr const char* kThisMachine = "127.0.0.1";

// A port that nobody else is given while this object exists. Rank 0 can listen at it, because both sides say
// SO_REUSEADDR and this one does not listen.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, kThisMachine, &address.sin_addr);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    const bool taken = socket_ >= 0 &&
                       ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                       ::bind(socket_, any, size) == 0 && ::getsockname(socket_, any, &size) == 0;
    if (!taken) {
      throw Error(ExitCode::usage, concat("the processes of a run talk over ", kThisMachine,
                                          ", and the system gives no port there: ", std::strerror(errno)));
    }
    number_ = ntohs(address.sin_port);
  }
  ~ReservedPort() { ::close(socket_); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;

  int number() const { return number_; }

 private:
  int socket_;
  int number_ = 0;
};

Texts own_arguments() {
  Texts arguments;
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  for (std::string argument; std::getline(in, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

int64_t cores_of_process() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const bool known = ::sched_getaffinity(0, sizeof cores, &cores) == 0;
  return known ? std::max(CPU_COUNT(&cores), 1) : 1;
}

// Those of this process, and the place of the rank.
Texts environment_of(int64_t rank, const RanksToStart& ranks, int port) {
  std::vector<std::pair<std::string, std::string>> own{
      {"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(ranks.count)},
      {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(ranks.count)},
      {"MASTER_ADDR", kThisMachine},        {"MASTER_PORT", std::to_string(port)},
      {kLauncherVariable, "trainer"}};
  if (ranks.share_cores && std::getenv("OMP_NUM_THREADS") == nullptr) {
    const int64_t share = std::max<int64_t>(cores_of_process() / ranks.count, 1);
    own.emplace_back("OMP_NUM_THREADS", std::to_string(share));
  }
  if (!ranks.visible_gpus.empty()) own.emplace_back("CUDA_VISIBLE_DEVICES", ranks.visible_gpus);
  Texts all;
  for (char** variable = environ; *variable != nullptr; variable++) {
    const std::string text = *variable;
    // Variables of another launcher do not apply to these processes.
    if (text.starts_with("TORCHELASTIC_")) continue;
    const bool is_set_anew =
        std::ranges::any_of(own, [&](const auto& entry) { return text.starts_with(entry.first + "="); });
    if (!is_set_anew) all.push_back(text);
  }
  for (const auto& [name, value] : own) all.push_back(concat(name, "=", value));
  return all;
}

std::vector<char*> pointers_to(Texts& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the new process. Its signals stay blocked until it handles them (StopSignals), so that none is lost and
// none ends it while it starts.
[[noreturn]] void become_rank(pid_t group, pid_t launcher, char* const* arguments, char* const* environment) {
  // A group of its own: Ctrl-C reaches the launcher alone, which hands it on once.
  ::setpgid(0, group);
  sigset_t usual;
  ::sigemptyset(&usual);
  for (const int number : {SIGCHLD, SIGTSTP}) ::sigaddset(&usual, number);
  ::sigprocmask(SIG_UNBLOCK, &usual, nullptr);
  ::signal(SIGTTOU, SIG_IGN);  // may write to the terminal all the same (stty tostop)
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(kUnexpectedError);  // it has died already
  ::execve(kOwnProgram, arguments, environment);
  ::_exit(kUnexpectedError);
}

// Starts this program `count` times with the arguments that it has itself, and with the variables of
// rank_place.h, and waits until all have ended. Signals to this process go to all of them. Returns if all
// ended well. Else throws Error with the exit code of the run, or ends by the signal that has ended them.
// Throws Error before any is started if the system gives no process or no port.
void start_ranks(const RanksToStart& ranks) {
  const ReservedPort port;
  RankWatch watch(ranks.patience);
  Texts arguments = own_arguments();
  const std::vector<char*> argument_pointers = pointers_to(arguments);
  const pid_t launcher = ::getpid();
  for (int64_t rank = 0; rank < ranks.count; rank++) {
    Texts environment = environment_of(rank, ranks, port.number());
    const std::vector<char*> environment_pointers = pointers_to(environment);
    const pid_t group = watch.group();
    const pid_t process = ::fork();
    if (process == 0) become_rank(group, launcher, argument_pointers.data(), environment_pointers.data());
    if (process < 0) {
      const std::string reason = std::strerror(errno);
      watch.kill_all();
      throw ConfigError(concat("the system gives no process for rank ", rank, " of ", ranks.count, ": ",
                               reason, " (see ulimit -u, or pids.max of a container)"));
    }
    watch.add(process);
  }
  watch.until_all_have_ended();
}

// The choice of one process or several for `trainer train`, and of the device.

struct ProcessOptions {
  std::optional<std::string> gpus;  // "4", "all"
  std::optional<int64_t> ranks;
};

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

// Returns how many processes to start; 1: this one trains. Settles config.device if the options do, also in
// the processes that were started. Throws ConfigError when options, configuration and launcher contradict
// each other, and DeviceError when there are fewer GPUs.
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

}  // namespace

void add_train(CLI::App& command) {
  struct Options {
    std::optional<std::string> config;
    std::vector<std::string> overrides;
    ProcessOptions processes;
  };
  auto options = std::make_shared<Options>();
  command.add_option("-c,--config", options->config, "Configuration (YAML)")->type_name("FILE");
  command.add_option("overrides", options->overrides, "Configuration keys that override the file")
      ->type_name("key=value");
  command
      .add_option("--gpus", options->processes.gpus,
                  "GPUs of this machine to train on, a process for each (parallel.gpus)")
      ->type_name("N|all");
  command
      .add_option("--ranks", options->processes.ranks,
                  "Processes on this machine that train together on the CPU (device=cpu)")
      ->type_name("N");
  command.footer([] {
    std::ostringstream keys;
    keys << "Configuration keys and their defaults (docs/config.md has more):\n\n";
    write_key_summary(keys);
    return keys.str();
  });
  command.callback([options] {
    const RankPlace place = rank_place();
    log::speak_as_rank(place.rank);
    Config config = load_training_config(options->config, options->overrides,
                                         [](Config& names) { resolve_names(names, {.goes_on = true}); });
    const int64_t processes = choose_processes(options->processes, place, config);
    // The reader of the output may go away (`| head`); the run goes on.
    std::signal(SIGPIPE, SIG_IGN);
    if (processes > 1) {
      const std::string gpus = config.device == "cpu" ? "" : freest_gpus(processes);
      return start_ranks({processes, config.training.num_threads == 0, gpus, config.parallel.timeout});
    }
    const StopSignals signals;  // until the library has its own
    run_in_library(TrainOptions{config}, config.training.num_threads, config.memory);
  });
}

}  // namespace trainer::cli
