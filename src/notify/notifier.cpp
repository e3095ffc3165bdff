// Decides which events of a run are told, and what they say.
#include "notify/notifier.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/ending.h"
#include "base/progress.h"
#include "base/shell_word.h"
#include "config/webhook.h"
#include "notify/deliveries.h"
#include "notify/outbox.h"
#include "notify/run_numbers.h"

namespace trainer {
namespace {

const char* in_words(int code) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::usage:
      return ", configuration";
    case ExitCode::data:
      return ", data";
    case ExitCode::files:
      return ", files";
    case ExitCode::out_of_memory:
      return ", out of memory";
    case ExitCode::no_device:
      return ", no device";
    case ExitCode::numbers:
      return ", NaN or Inf";
    case ExitCode::device_fault:
      return ", the GPU failed";
    case ExitCode::done:
    case ExitCode::interrupted:
      break;
  }
  return "";
}

// "exit code 5, out of memory"
std::string code_text(const Ending& ending) {
  return concat("exit code ", ending.code, in_words(ending.code));
}

std::vector<std::string> arguments_of_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

bool begins_anew(const std::string& argument) {
  return argument.starts_with("overwrite_output_dir=") || argument.starts_with("resume=");
}

// Returns the command that resumes the run, ready for a shell: that of this process, without secrets and
// without what would begin the run anew. "" if the process is not the program trainer.
std::string resume_command() {
  std::vector<std::string> arguments = arguments_of_process();
  if (arguments.empty() || !("/" + arguments[0]).ends_with("/trainer")) return "";
  std::erase_if(arguments, begins_anew);
  for (std::string& argument : arguments) argument = shell_word(shown_override(argument));
  return join(arguments, " ");
}

namespace fs = std::filesystem;
using NotifierClock = std::chrono::steady_clock;

constexpr double kLastWait = 5;       // seconds that a run may take longer for its last message
constexpr size_t kLastLines = 8;      // lines of the log in the message of a failure
constexpr size_t kLongestLine = 300;  // characters

// Warnings and recoveries may come with every step: a few are told, of the others how many there were.
class Allowance {
 public:
  // Returns whether one more may be told now.
  bool take() {
    const auto now = NotifierClock::now();
    while (!told_.empty() && now - told_.front() > std::chrono::minutes(10)) told_.pop_front();
    if (told_.size() >= 5) {
      withheld_++;
      return false;
    }
    told_.push_back(now);
    return true;
  }
  // Returns how many were not told since the last call.
  int64_t take_withheld() { return std::exchange(withheld_, 0); }

 private:
  std::deque<NotifierClock::time_point> told_;
  int64_t withheld_ = 0;
};

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string run_name(const fs::path& output) {
  const fs::path path = fs::absolute(output).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::string metric_name(const TrainingConfig& training) {
  const std::string& name = training.metric_for_best_model;
  return name.starts_with("eval_") ? name : "eval_" + name;
}

bool asks_for_messages(const NotifyConfig& config) {
  return !config.webhook.empty() || !config.command.empty();
}

}  // namespace

struct Notifier::State {
  explicit State(const Config& config)
      : config(config.notify),
        output(config.output_dir),
        can_resume(!config.save.weights_only),
        numbers(metric_name(config.training)) {
    const std::string address = webhook_address(this->config);
    if (!address.empty())
      outboxes.push_back(
          std::make_unique<Outbox>("notify.webhook", webhook_delivery(address, this->config.format)));
    if (!this->config.command.empty())
      outboxes.push_back(std::make_unique<Outbox>("notify.command", command_delivery(this->config.command)));
    log::set_listener([this](log::Level level, const std::string& line) { hear(level, line); });
  }
  ~State() { log::set_listener(nullptr); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const NotifyConfig config;
  const fs::path output;
  const bool can_resume;
  const std::string name = run_name(output), host = host_name();
  std::vector<std::unique_ptr<Outbox>> outboxes;

  std::mutex mutex;  // guards all below: threads of the run log, too
  RunNumbers numbers;
  bool has_begun = false, has_started = false, has_state = false, has_ended = false;
  int64_t first_step = 0;
  NotifierClock::time_point last_progress;
  std::deque<std::string> last_lines;
  std::string warning;  // waits for what comes next: a recovery logs one first
  Allowance warnings, recoveries;

  bool is_wanted(const std::string& kind) const { return std::ranges::count(config.events, kind) > 0; }

  // The functions below are called with the mutex held.

  void tell(const std::string& kind, const std::string& headline, const std::string& text,
            const nlohmann::ordered_json& more = nlohmann::ordered_json::object(),
            std::vector<std::string> lines = {}) {
    if (!is_wanted(kind)) return;
    Event event;
    event.kind = kind;
    event.text = concat(name, " ", headline, text.empty() ? "" : "\n", text, withheld_text());
    event.lines = std::move(lines);
    event.values = {
        {"event", kind}, {"run", name}, {"host", host}, {"time", utc_now()}, {"output_dir", output.string()}};
    event.values.update(numbers.json());
    event.values.update(more);
    for (const auto& outbox : outboxes) outbox->put(event);
  }

  std::string withheld_text() {
    const int64_t count = warnings.take_withheld() + recoveries.take_withheld();
    return count == 0
               ? ""
               : concat("\n(and ", count, count == 1 ? " more warning" : " more warnings", " in log.txt)");
  }

  void tell_warning() {
    if (warning.empty()) return;
    const std::string line = std::exchange(warning, "");
    if (is_wanted("warning") && warnings.take())
      tell("warning", concat("warns, ", numbers.step_text()), line, {{"message", line}});
  }

  void add_step(const MetricRow& row) {
    numbers.add(row);
    if (!std::exchange(has_started, true)) {
      tell("start",
           concat(first_step > 0 ? "is resumed" : "has started", host.empty() ? "" : " on " + host, ": ",
                  numbers.step_text()),
           numbers.text(), {{"resumed", first_step > 0}});
      last_progress = NotifierClock::now();
      numbers.begin_interval();
      return;
    }
    if (config.every_minutes <= 0 || seconds_since(last_progress) < 60 * config.every_minutes) return;
    tell("progress", numbers.step_text(), numbers.text());
    last_progress = NotifierClock::now();
    numbers.begin_interval();
  }

  void add_recovery(const MetricRow& row) {
    const std::string line =
        one_line(warning.empty() ? row.values.value("message", std::string()) : std::exchange(warning, ""),
                 kLongestLine);
    if (is_wanted("recovery") && recoveries.take())
      tell("recovery", concat("was out of memory and continues, ", numbers.step_text()), line,
           {{"message", line}});
  }

  void add(const MetricRow& row) {
    if (row.kind == "recovery") {
      add_recovery(row);
      return;
    }
    tell_warning();
    if (row.kind == "train") add_step(row);
    if (row.kind != "train") numbers.add(row);
    if (row.kind == "save") has_state = can_resume;
  }

  void add_best(const MetricRow& evaluation) {
    const std::string before = numbers.best_text();
    numbers.set_best();
    tell("best", concat("has a better evaluation, ", numbers.step_text()),
         concat(numbers.best_text(), before.empty() ? "" : ", before " + before),
         {{"evaluation", evaluation.values}});
  }

  void tell_end(const Ending& ending) {
    const bool stopped = ending.code == static_cast<int>(ExitCode::interrupted);
    std::string text = without_secrets(ending.message);
    nlohmann::ordered_json more = {{"exit_code", ending.code}, {"message", text}};
    const std::string command = has_state || stopped ? resume_command() : "";
    if (text.size() > kLongestLine) text = text.substr(0, text.find('\n'));
    if (!command.empty()) {
      std::error_code ignored;
      const std::string directory = fs::current_path(ignored).string();
      text += concat("\nto resume, in ", directory, ":\n", command);
      more["resume_command"] = command;
      more["resume_directory"] = directory;
    }
    const std::string headline = stopped
                                     ? concat("was stopped, ", numbers.step_text())
                                     : concat("has failed (", code_text(ending), "), ", numbers.step_text());
    tell(stopped ? "stopped" : "failed", headline, text, more,
         stopped ? std::vector<std::string>{} : std::vector(last_lines.begin(), last_lines.end()));
  }

  void tell_result() {
    const std::string best = numbers.best_text();
    tell("finished",
         concat("is finished: ", grouped(numbers.step()), " steps, ", duration_string(numbers.seconds())),
         concat(numbers.text(), best.empty() ? "" : "\nbest: " + best, "\nresult: ", output.string()),
         {{"exit_code", 0}, {"seconds", numbers.seconds()}});
  }

  // Called by every thread that logs.
  void hear(log::Level level, const std::string& line) {
    if (is_outbox_thread()) return;
    const std::lock_guard lock(mutex);
    if (has_ended) return;
    const std::string shown = without_secrets(one_line(line, kLongestLine));
    last_lines.push_back(shown);
    if (last_lines.size() > kLastLines) last_lines.pop_front();
    if (level != log::Level::warning) return;
    tell_warning();
    warning = shown;
  }

  void wait() {
    const Progress shown("sending the last message");
    for (const auto& outbox : outboxes) outbox->close(kLastWait);
    for (const auto& outbox : outboxes) outbox->finish(kLastWait);
  }
};

Notifier::Notifier(const Config& config)
    : state_(asks_for_messages(config.notify) ? std::make_unique<State>(config) : nullptr) {}

Notifier::~Notifier() = default;

void Notifier::begin(int64_t first_step, const RunOutlook& outlook) {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  state_->numbers.begin(first_step, outlook);
  state_->first_step = first_step;
  state_->has_begun = true;
  state_->has_state = first_step > 0;
}

void Notifier::write(const MetricRow& row) {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  state_->add(row);
}

void Notifier::write_best(const MetricRow& evaluation) {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  state_->add_best(evaluation);
}

void Notifier::finished() {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->tell_warning();
    if (state_->has_begun) state_->tell_result();
    state_->has_ended = true;
  }
  state_->wait();
}

void Notifier::failed(const std::exception_ptr& error) {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->tell_warning();
    state_->tell_end(ending_of(error));
    state_->has_ended = true;
  }
  state_->wait();
}

}  // namespace trainer
