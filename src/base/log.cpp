#include "trainer/base/log.h"

#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <system_error>

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include "trainer/base/strings.h"

#include "base/stderr_sink.h"
#include "base/terminal.h"

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
    sink.log({kName, spdlog_level(level), message});
    sink.flush();
  } catch (const std::exception&) {
  }
}

void tell_listener(Level level, const std::string& message) {
  if (level == Level::debug) return;
  const std::lock_guard lock(listener_mutex);
  if (listener) listener(level, message);
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
    throw std::runtime_error("is not a regular file");  // opening a named pipe would wait
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
