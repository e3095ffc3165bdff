#include "cli/start_ranks.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sched.h>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/rank_place.h"
#include "trainer/base/strings.h"

#include "base/ending.h"
#include "cli/watch_ranks.h"

namespace trainer::cli {
namespace {

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
    // What another launcher has left is not of these processes.
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

}  // namespace

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

}  // namespace trainer::cli
