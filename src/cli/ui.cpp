// trainer ui [DIR ...]
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/child_process.h"
#include "cli/commands.h"
#include "cli/open_core.h"
#include "ui/access.h"
#include "ui/http/http_job.h"
#include "ui/site.h"

namespace trainer::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kPort = 8620, kPortsTried = 40;

struct UiOptions {
  std::vector<std::string> folders;
  int port = -1;  // -1: kPort, or the next that is free
  bool open = false;
};

// The signals that end the page: those that are not ignored (nohup, background jobs of a shell). They are
// blocked in all threads, and waited for in one.
sigset_t ending_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&signals, number);
  }
  return signals;
}

// Calls `end` at the first signal. The second one ends the program at once.
void wait_for_signals(const std::stop_token& stop, const std::function<void()>& end) {
  const sigset_t signals = ending_signals();
  const timespec pause{0, 100'000'000};
  bool is_ending = false;
  while (!stop.stop_requested()) {
    const int number = ::sigtimedwait(&signals, nullptr, &pause);
    if (number < 0) continue;
    if (is_ending) ::_exit(128 + number);
    is_ending = true;
    end();
  }
}

// Returns the first port from `first` on that nobody listens on; 0 if none of some is free.
int free_port(int first) {
  for (int port = first; port < first + kPortsTried && port < 65536; port++) {
    const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place.sin_port = htons(static_cast<uint16_t>(port));
    const bool is_free = ::bind(probe, reinterpret_cast<const sockaddr*>(&place), sizeof(place)) == 0;
    ::close(probe);
    if (is_free) return port;
  }
  return 0;
}

std::string why_no_port(int port, int error) {
  if (error == EACCES) return "is one that only root may use; choose one above 1023";
  if (error != EADDRINUSE) return concat("cannot be listened on: ", std::strerror(error));
  const int other = free_port(port + 1);
  return concat("is in use; ", other > 0 ? concat(other, " is free: trainer ui --port ", other)
                                         : "trainer ui --port 0 takes any that is free");
}

// A file that only this user can read leads the browser to the page: on a command line, others would see the
// token.
class Opener {
 public:
  explicit Opener(const std::string& address) {
    std::string name = (fs::temp_directory_path() / "trainer-ui-XXXXXX.html").string();
    const int file = ::mkstemps(name.data(), 5);
    const std::string text = concat(
        "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url=", address,
        "\"><a href=\"", address, "\">trainer ui</a>\n");
    if (file >= 0) file_ = name;
    const bool is_written = file >= 0 && ::write(file, text.data(), text.size()) == std::ssize(text);
    if (file >= 0) ::close(file);
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    pid_t browser = 0;
    const bool is_started = is_written && start_child({"xdg-open", name}, environment_variables(),
                                                      {nothing, nothing, nothing}, browser) == 0;
    ::close(nothing);
    if (!is_started) log::warning("--open: no browser could be started (xdg-open); open the address by hand");
  }
  ~Opener() {
    std::error_code ignored;
    if (!file_.empty()) fs::remove(file_, ignored);
  }
  Opener(const Opener&) = delete;
  Opener& operator=(const Opener&) = delete;

 private:
  fs::path file_;
};

// The address alone goes to stdout, for programs.
void say_where(const std::string& address, int port) {
  std::cout << address << std::endl;
  if (std::getenv("SSH_CONNECTION") != nullptr)
    log::info(concat("on the machine with your browser: ssh -L ", port, ":127.0.0.1:", port,
                     " THIS_MACHINE, then open the address there"));
  log::info(
      "whoever has the address can read these runs, chat with them and stop them; Ctrl-C ends the page");
}

void run_ui(const UiOptions& options) {
  std::vector<fs::path> folders(options.folders.begin(), options.folders.end());
  if (folders.empty()) folders.emplace_back(".");
  for (const fs::path& folder : folders) {
    std::error_code failed;
    if (!fs::is_directory(folder, failed)) throw FormatError(concat(folder.string(), ": is not a directory"));
  }
  const auto serve = reinterpret_cast<decltype(&trainer_serve_http)>(
      function_of_library(TRAINER_HTTP_LIBRARY, ui::kServeHttp, "apt install libssl3 brings what it needs"));
  const sigset_t signals = ending_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const std::string token = ui::new_token();
  ui::Site site(token, folders);
  std::jthread waiter;
  std::unique_ptr<Opener> opener;
  ui::HttpJob job;
  job.refuse = [&](const ui::HttpRequest& request, ui::HttpResponse& refusal) {
    return site.refuse(request, refusal);
  };
  job.answer = [&](const ui::HttpRequest& request) { return site.answer(request); };
  job.listening = [&](int port, const std::function<void()>& stop) {
    waiter = std::jthread([&site, stop](const std::stop_token& ended) {
      wait_for_signals(ended, [&] {
        site.end();
        stop();
      });
    });
    const std::string address = concat("http://127.0.0.1:", port, "/", token, "/");
    say_where(address, port);
    if (options.open) opener = std::make_unique<Opener>(address);
  };
  job.port = options.port >= 0 ? options.port : free_port(kPort);
  if (const int error = serve(job); error != 0)
    throw of_family(ErrorCode::command_line,
                    ConfigError(concat("ui: port ", job.port, " ", why_no_port(job.port, error))));
}

}  // namespace

void add_ui(CLI::App& command) {
  auto options = std::make_shared<UiOptions>();
  command
      .add_option("folders", options->folders, "Folders with runs in and below them, or runs (default: here)")
      ->type_name("DIR");
  command
      .add_option("--port", options->port,
                  concat("Port to listen on; 0: any (default: ", kPort, ", or the next that is free)"))
      ->type_name("N")
      ->check(CLI::Range(0, 65535));
  command.add_flag("--open", options->open, "Open the page in the browser");
  command.footer(
      "Listens on 127.0.0.1 only, and answers only to its own address, which has a token in it. From "
      "another\n"
      "machine: ssh -L 8620:127.0.0.1:8620 HOST. docs/ui.md says more.");
  command.callback([options] { run_ui(*options); });
}

}  // namespace trainer::cli
