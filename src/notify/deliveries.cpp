// The two ways in which events are delivered: posted to an address, and given to a command.
#include "notify/deliveries.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <string_view>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/strings.h"

#include "base/child_process.h"
#include "base/progress.h"
#include "net/http.h"
#include "notify/message_format.h"

namespace trainer {
namespace {

using Outcome = Delivery::Outcome;

constexpr int kConnectSeconds = 5, kRequestSeconds = 10;
constexpr double kLongestAskedWait = 600;

// Returns the wait that the server asks for, in seconds; 0: none, or a date.
double asked_wait(const net::Response& response) {
  double seconds = std::strtod(response.header("retry-after").c_str(), nullptr);
  const auto body = nlohmann::json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (body.is_object() && body.contains("retry_after") && body["retry_after"].is_number())
    seconds = body["retry_after"].get<double>();
  return seconds > 0 ? std::min(seconds, kLongestAskedWait) : 0;
}

// The body of an answer may repeat the address, so that only the status is told.
Delivery delivery_of(const net::Response& response, const std::string& origin) {
  if (response.is_success()) return {};
  const int status = response.status;
  const std::string problem = concat(origin, " answers with HTTP ", status);
  if (status == 429 || status == 408 || status >= 500) return {Outcome::later, problem, asked_wait(response)};
  if (status >= 300 && status < 400)
    return {Outcome::never, concat(problem, ", a redirect, which is not followed: give the new address")};
  if (status == 400 || status == 413 || status == 415 || status == 422)
    return {Outcome::never, concat(problem, ": it does not take the message; is notify.format right?")};
  return {Outcome::never, concat(problem, ": is the address still right?")};
}

}  // namespace

Deliver webhook_delivery(const std::string& address, NotifyFormat format) {
  const auto client = std::make_shared<std::optional<net::Client>>();
  return [client, address, format](const Event& event, int64_t left_out,
                                   const std::atomic<bool>& abort) -> Delivery {
    try {
      net::Request request = message_request(format, address, event, left_out);
      request.connect_timeout = kConnectSeconds;
      request.timeout = kRequestSeconds;
      request.longest_body = 1'000'000;
      request.abort = &abort;
      if (!*client) client->emplace();
      return delivery_of((*client)->send(request), net::origin_of(address));
    } catch (const net::NetworkError& error) {
      return {error.is_transient() ? Outcome::later : Outcome::never, error.what()};
    }
  };
}

namespace {

// A file in memory with a text to read: unlike a pipe, it needs nobody who writes.
class TextFile {
 public:
  explicit TextFile(const std::string& text) : file_(::memfd_create("event", MFD_CLOEXEC)) {
    if (file_ < 0) return;
    const bool written = ::write(file_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (!written || ::lseek(file_, 0, SEEK_SET) != 0) close();
  }
  ~TextFile() { close(); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  int get() const { return file_; }  // -1: there is none

 private:
  void close() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }
  int file_;
};

std::vector<std::string> environment_for(const Event& event) {
  std::vector<std::string> variables = environment_variables();
  const auto set = [&](const std::string& name, const std::string& value) {
    std::erase_if(variables, [&](const std::string& other) { return other.starts_with(name + "="); });
    variables.push_back(concat(name, "=", value));
  };
  set("TRAINER_TEXT", event.text);
  for (const auto& [name, key] :
       {std::pair("TRAINER_EVENT", "event"), std::pair("TRAINER_RUN", "run"),
        std::pair("TRAINER_OUTPUT_DIR", "output_dir"), std::pair("TRAINER_STEP", "step"),
        std::pair("TRAINER_TOTAL_STEPS", "total_steps"), std::pair("TRAINER_EXIT_CODE", "exit_code")}) {
    if (!event.values.contains(key)) continue;
    const nlohmann::ordered_json& value = event.values[key];
    set(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return variables;
}

Delivery ending_of_command(int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (WIFSIGNALED(status))
    return {Outcome::never, concat("the command was ended by signal ", WTERMSIG(status))};
  const int code = WEXITSTATUS(status);
  const char* why = code == 127   ? ": there is no such program"
                    : code == 126 ? ": the program cannot be executed"
                                  : "";
  return {Outcome::never, concat("the command ended with exit code ", code, why)};
}

// Waits for the child, and ends it when its time is up.
Delivery wait_for_command(pid_t child, double seconds, const std::atomic<bool>& abort) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return ending_of_command(status);
    if (ended < 0 && errno != EINTR) return {};  // SIGCHLD is ignored: nobody knows how it ended
    if (abort || seconds_since(begin) > seconds) {
      ::kill(-child, SIGKILL);
      while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
      }
      return {Outcome::never, concat("the command took longer than ", seconds, " s and was ended")};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

Deliver command_delivery(const std::string& command, double seconds) {
  return [command, seconds](const Event& event, int64_t left_out,
                            const std::atomic<bool>& abort) -> Delivery {
    const auto replace = nlohmann::ordered_json::error_handler_t::replace;
    const TextFile input(event_json(event, left_out).dump(-1, ' ', false, replace) + "\n");
    if (input.get() < 0)
      return {Outcome::never, concat("the event cannot be handed to the command: ", std::strerror(errno))};
    pid_t child = 0;
    if (const int error =
            start_child({"/bin/sh", "-c", command}, environment_for(event), input.get(), "/dev/null", child);
        error != 0)
      return {Outcome::never, concat("/bin/sh cannot be started: ", std::strerror(error))};
    return wait_for_command(child, seconds, abort);
  };
}

}  // namespace trainer
