#include "ui/live_runs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "trainer/base/strings.h"

namespace trainer::ui {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kMostOpen = 32;         // runs whose curves are kept in memory, less than 1 MB each
constexpr int64_t kMostOfLog = 256'000;  // bytes

// The processes of a run are those of this program, whatever a status.json says that came with a copied run.
bool is_this_program(int64_t pid) {
  std::array<char, PATH_MAX> program{};
  const std::string link = concat("/proc/", pid, "/exe");
  return ::readlink(link.c_str(), program.data(), program.size() - 1) > 0 &&
         fs::path(program.data()).filename().string().starts_with("trainer");
}

bool is_of_this_user(int64_t pid) {
  struct stat facts {};
  return ::stat(concat("/proc/", pid).c_str(), &facts) == 0 && facts.st_uid == ::geteuid();
}

// Why the run cannot be stopped from here; "" if it can.
std::string obstacle(const RunStatus& status) {
  if (status.state != RunPhase::running && status.state != RunPhase::starting)
    return concat("The run is not running: it is ", name_of(status.state), ".");
  switch (life_of(status.process)) {
    case Life::dead:
      return "The process of the run is gone.";
    case Life::elsewhere:
      return concat("The run is on ", status.process.host, ", or in another container: stop it there.");
    case Life::alive:
      break;
  }
  const int64_t pid = status.process.pid;
  if (!is_of_this_user(pid)) return concat("Process ", pid, " of the run belongs to another user.");
  if (!is_this_program(pid)) return concat("Process ", pid, " is no process of trainer.");
  return "";
}

// A descriptor of a process stays that of this process, while a number may be given to another one.
class ProcessHandle {
 public:
  explicit ProcessHandle(int64_t pid)
      : pid_(static_cast<pid_t>(pid)), file_(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0))) {}
  ~ProcessHandle() {
    if (file_ >= 0) ::close(file_);
  }
  ProcessHandle(const ProcessHandle&) = delete;
  ProcessHandle& operator=(const ProcessHandle&) = delete;

  bool send(int signal) const {
    if (file_ < 0) return ::kill(pid_, signal) == 0;  // before Linux 5.3
    return ::syscall(SYS_pidfd_send_signal, file_, signal, nullptr, 0) == 0;
  }

 private:
  pid_t pid_;
  int file_;
};

}  // namespace

LiveRuns::Open LiveRuns::open(const KnownRun& run) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(open_, run.id, &Open::id);
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
  } else {
    open_.push_front({run.id, std::make_shared<RunReader>(run.path), std::make_shared<std::mutex>()});
    if (open_.size() > kMostOpen) open_.pop_back();
  }
  return open_.front();
}

std::string LiveRuns::stamp(const KnownRun& run) {
  std::string all = name_of(index_.status(run).state);
  for (const char* name :
       {"metrics.jsonl", "status.json", "predictions", "data_report.json", "environment.json", "config.yaml"})
    all += " " + stamp_of(run.path / name);
  return all;
}

Json LiveRuns::run(const KnownRun& run) {
  const Open known = open(run);
  const std::scoped_lock reading(*known.reads);
  Json shown = known.reader->read(ReportedState::unknown, /*may_lack_metrics=*/true);
  const RunStatus status = index_.status(run);
  shown["id"] = run.id;
  shown["name"] = run.name;
  shown["status"] = to_json(status);
  shown["can_stop"] = obstacle(status).empty();
  return shown;
}

Json read_log(const fs::path& run, int64_t from) {
  std::ifstream in(run / "log.txt", std::ios::binary | std::ios::ate);
  const int64_t size = in ? static_cast<int64_t>(in.tellg()) : 0;
  int64_t begin = from < 0 || from > size ? std::max<int64_t>(0, size - kMostOfLog) : from;
  const bool is_cut = size - begin > kMostOfLog || (begin > 0 && begin != from);
  if (is_cut) begin = size - kMostOfLog;
  std::string text(static_cast<size_t>(size - begin), '\0');
  in.seekg(begin);
  in.read(text.data(), std::ssize(text));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  // A half-written line comes with the next call, and the rest of a line that began before is left out.
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  if (is_cut) {
    const size_t cut = text.find('\n');
    const size_t left_out = cut == std::string::npos ? text.size() : cut + 1;
    text.erase(0, left_out);
    begin += static_cast<int64_t>(left_out);
  }
  return {
      {"from", begin}, {"to", begin + std::ssize(text)}, {"text", text}, {"skipped", is_cut || from > size}};
}

std::string stop_run(const RunStatus& status) {
  const ProcessHandle process(status.process.pid);
  // Asked after the process is held: its number cannot be another's from here on.
  if (const std::string why = obstacle(status); !why.empty()) return why;
  if (process.send(SIGTERM)) return "";
  return concat("Process ", status.process.pid, " could not be told to stop: ", std::strerror(errno), ".");
}

}  // namespace trainer::ui
