#include "notify/reporters.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/ask_python.h"
#include "base/child_process.h"
#include "base/file_facts.h"
#include "base/progress.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderOfWheel = "trainer_program";  // as src/cli/open_core.cpp has it
constexpr double kLastReportWait = 5;                      // seconds that a run may take longer for them

// The Python whose packages are used: the one that started the program, the one that pip installed it with,
// or the one on the PATH.
std::string python_for_helpers() {
  if (const char* named = std::getenv("TRAINER_PYTHON"); named != nullptr && *named != '\0') return named;
  std::error_code ignored;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  return prefix.filename() == kFolderOfWheel ? python_of(prefix.parent_path()) : "python3";
}

std::optional<fs::path> find_script() {
  const auto in_sources = find_shipped("scripts/sync_metrics");
  return in_sources ? in_sources : find_shipped("sync_metrics");
}

std::string last_line(const fs::path& file) {
  std::ifstream lines(file);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

std::string how_to_install_reporter(const std::string& service) {
  const std::string python = python_for_helpers();
  return package_in(python, service).empty() ? concat(python, " -m pip install ", service) : "";
}

struct Reporters::Helper {
  std::string service;
  std::vector<std::string> command;  // without what only a run gives; sends the rest later
  fs::path log_file;
  pid_t process = 0;     // 0: none, or it has ended
  int run_goes_on = -1;  // the end of the pipe to its standard input that this process holds

  ~Helper() { tell_end(); }

  std::string name() const { return concat("observe.report_to: ", service, ": "); }
  std::string how_to_send() const {
    return concat("`", join(command, " "), "` sends what is missing, also afterwards");
  }

  void start() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      return log::warning(concat(name(), "no helper: ", std::strerror(errno), "; the run goes on"));
    std::vector<std::string> with_run = command;
    with_run.emplace_back("--with-run");
    const int failed = start_child(with_run, environment_variables(), ends[0], log_file, process);
    ::close(ends[0]);
    run_goes_on = ends[1];
    if (failed == 0) {
      log::info(
          concat(name(), "gets the metrics from process ", process, ", which writes ", log_file.string()));
      return;
    }
    process = 0;
    tell_end();
    log::warning(concat(name(), command[0], " cannot be started: ", std::strerror(failed),
                        "; the run goes on, and ", how_to_send()));
  }

  void tell_end() {
    if (run_goes_on >= 0) ::close(std::exchange(run_goes_on, -1));
  }

  // Returns whether the helper goes on. Says why if it has ended before everything was sent.
  bool look() {
    int status = 0;
    if (process == 0) return false;
    const pid_t ended = ::waitpid(process, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return true;
    process = 0;
    if (ended < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return false;
    const std::string last = last_line(log_file);
    log::warning(concat(name(), last.empty() ? "its helper has ended" : last, "; the run goes on, and ",
                        how_to_send()));
    return false;
  }
};

Reporters::Reporters() = default;

void Reporters::begin(const std::vector<std::string>& services, const fs::path& directory) {
  if (services.empty()) return;
  const std::string python = python_for_helpers();
  const auto script = find_script();
  for (const std::string& service : services) {
    auto helper = std::make_unique<Helper>();
    helper->service = service;
    helper->log_file = directory / concat(".sync-", service, ".log");
    if (!script) {
      log::warning(concat(helper->name(), "the script sync_metrics is missing; install the program again"));
      continue;
    }
    helper->command = {python, script->string(), directory.string(), "--to", service};
    if (const std::string install = how_to_install_reporter(service); !install.empty()) {
      log::warning(concat(helper->name(), "is not installed: ", install, "; the run goes on, and ",
                          helper->how_to_send()));
      continue;
    }
    helper->start();
    helpers_.push_back(std::move(helper));
  }
}

void Reporters::write(const MetricRow& /*row*/) {
  for (const auto& helper : helpers_) helper->look();
}

Reporters::~Reporters() {
  for (const auto& helper : helpers_) helper->tell_end();
  const auto begin = std::chrono::steady_clock::now();
  const Progress shown("sending the last metrics");
  for (const auto& helper : helpers_) {
    while (helper->look()) {
      if (seconds_since(begin) > kLastReportWait) {
        log::info(concat(helper->name(), "process ", helper->process, " goes on and sends the rest"));
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

}  // namespace trainer
