#include "trainer/base/log.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unistd.h>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/foreign_errors.h"
#include "base/live_lines.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "base/text.h"

namespace trainer {
namespace {

// Log lines as text on stderr.

// "HH:MM:SS I message". On a terminal, broken between words, and above the live lines.
class StderrSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  double seconds_of_silence() const;

  // The text in front of each message; "" if none. Set it before there are other threads.
  void set_speaker(const std::string& speaker) { speaker_ = speaker; }
  const std::string& speaker() const { return speaker_; }

  // Shows what `before` showed.
  void take_over(const StderrSink& before) {
    set_level(before.level());
    speaker_ = before.speaker_;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  std::string speaker_;
  std::atomic<std::chrono::steady_clock::time_point> last_{std::chrono::steady_clock::now()};
};

constexpr size_t kNarrow = 60;  // columns; no room there to indent by the width of the time

std::string prefix_of(const spdlog::details::log_msg& message) {
  const std::time_t seconds = spdlog::log_clock::to_time_t(message.time);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%H:%M:%S ", &local);
  const auto level = spdlog::level::to_short_c_str(message.level);
  return concat(text.data(), level);
}

// The colour of the time; warnings and errors are coloured as a whole.
const char* colour_of(spdlog::level::level_enum level) {
  if (level == spdlog::level::warn) return "\x1b[33m";
  if (level >= spdlog::level::err) return "\x1b[31m";
  return level == spdlog::level::debug ? "\x1b[36m" : "\x1b[32m";
}

void StderrSink::sink_it_(const spdlog::details::log_msg& message) {
  const std::string prefix = prefix_of(message);
  std::string text = concat(speaker_, std::string_view(message.payload.data(), message.payload.size()));
  if (const auto terminal = stderr_terminal()) {
    const size_t indent = terminal->width < kNarrow ? 2 : prefix.size() + 1;
    text = broken_at_words(text, terminal->width, prefix.size() + 1, indent);
  }
  const bool loud = message.level >= spdlog::level::warn;
  std::string line = concat(prefix, " ", text, "\n");
  if (stderr_has_colour()) {
    const char* colour = colour_of(message.level);
    line = loud ? concat(colour, prefix, " ", text, "\x1b[0m\n")
                : concat(colour, prefix, "\x1b[0m ", text, "\n");
  }
  write_above_live_lines(line);
  last_ = std::chrono::steady_clock::now();
}

double StderrSink::seconds_of_silence() const { return seconds_since(last_.load()); }

}  // namespace

}  // namespace trainer

namespace trainer::log {
namespace {

constexpr const char* kName = "trainer";

std::mutex listener_mutex;
std::function<void(Level, const std::string&)> listener;

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

struct Logger {
  std::shared_ptr<spdlog::logger> lines;
  std::shared_ptr<StderrSink> to_stderr;  // the first sink
};

// Found by name in the registry of spdlog, which the launcher shares with the library that it opens. The sink
// is the one of whoever logged first last: the library's, which knows the live lines.
Logger& logger() {
  static Logger instance = [] {
    Logger made{spdlog::get(kName), std::make_shared<StderrSink>()};
    if (made.lines) {
      made.to_stderr->take_over(static_cast<const StderrSink&>(*made.lines->sinks()[0]));
      made.lines->sinks()[0] = made.to_stderr;
      return made;
    }
    made.lines = std::make_shared<spdlog::logger>(kName, made.to_stderr);
    made.lines->set_level(spdlog::level::debug);
    made.to_stderr->set_level(spdlog::level::info);
    spdlog::register_logger(made.lines);
    return made;
  }();
  return instance;
}

// A line that cannot be written (disk full) is lost.
void write(spdlog::sinks::sink& sink, Level level, const std::string& message) {
  if (!sink.should_log(spdlog_level(level))) return;
  try {
    sink.log({kName, spdlog_level(level), printable(message)});
    sink.flush();
  } catch (const std::exception&) {
  }
}

void tell_listener(Level level, const std::string& message) {
  if (level == Level::debug) return;
  const std::lock_guard lock(listener_mutex);
  if (listener) listener(level, printable(message));
}

void write(Level level, const std::string& message) {
  for (const auto& sink : logger().lines->sinks()) write(*sink, level, message);
  tell_listener(level, message);
}

}  // namespace

void set_level(Level level) { logger().lines->sinks()[0]->set_level(spdlog_level(level)); }

bool is_shown(Level level) { return logger().to_stderr->should_log(spdlog_level(level)); }

void add_file(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw FormatError("is not a regular file");  // opening a named pipe would wait
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0)
    throw std::system_error(errno, std::generic_category());  // the sink says it in words of its own
  ::close(fd);
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, /*truncate=*/false);
  sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  logger().lines->sinks().push_back(sink);
}

void set_listener(std::function<void(Level level, const std::string& message)> next) {
  const std::lock_guard lock(listener_mutex);
  listener = std::move(next);
}

void debug(const std::string& message) { write(Level::debug, message); }
void info(const std::string& message) { write(Level::info, message); }
void warning(const std::string& message) { write(Level::warning, message); }
void error(const std::string& message) { write(Level::error, message); }

void info_in_one_line(const std::string& message, const std::function<std::string(size_t)>& fitted) {
  constexpr size_t kPrefix = 11;  // "12:34:56 I "
  const auto terminal = stderr_terminal();
  const bool fits = !terminal || terminal->width <= kPrefix;
  for (const auto& sink : logger().lines->sinks()) {
    const bool is_stderr = sink == logger().lines->sinks()[0];
    write(*sink, Level::info, is_stderr && !fits ? fitted(terminal->width - kPrefix) : message);
  }
  tell_listener(Level::info, message);
}

void show(const std::string& message) { write(*logger().to_stderr, Level::info, message); }

void speak_as_rank(int64_t rank) {
  if (rank == 0) return;
  logger().to_stderr->set_level(spdlog::level::warn);
  logger().to_stderr->set_speaker(concat("rank ", rank, ": "));
}

std::string speaker() { return logger().to_stderr->speaker(); }

double seconds_of_silence() { return logger().to_stderr->seconds_of_silence(); }

}  // namespace trainer::log
