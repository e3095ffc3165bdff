#include "trainer/base/log.h"

#include <filesystem>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <system_error>

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace trainer::log {
namespace {

void (*before_line)() = nullptr;
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

// Found by name in the registry of spdlog, which the launcher shares with the library that it opens.
spdlog::logger& logger() {
  static std::shared_ptr<spdlog::logger> instance = [] {
    if (auto existing = spdlog::get("trainer")) return existing;
    auto made = spdlog::stderr_color_mt("trainer");
    made->set_level(spdlog::level::debug);
    made->sinks()[0]->set_level(spdlog::level::info);
    made->set_pattern("%^%H:%M:%S %L%$ %v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

void write(Level level, const std::string& message) {
  if (before_line != nullptr) before_line();
  logger().log(spdlog_level(level), "{}", message);
  if (level == Level::debug) return;
  const std::lock_guard lock(listener_mutex);
  if (listener) listener(level, message);
}

}  // namespace

void set_level(Level level) { logger().sinks()[0]->set_level(spdlog_level(level)); }

bool is_shown(Level level) { return logger().sinks()[0]->should_log(spdlog_level(level)); }

void add_file(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw std::runtime_error("is not a regular file");  // opening a named pipe would wait
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, /*truncate=*/false);
  sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  logger().sinks().push_back(sink);
}

void set_before_line(void (*callback)()) { before_line = callback; }

void set_listener(std::function<void(Level level, const std::string& message)> next) {
  const std::lock_guard lock(listener_mutex);
  listener = std::move(next);
}

void debug(const std::string& message) { write(Level::debug, message); }
void info(const std::string& message) { write(Level::info, message); }
void warning(const std::string& message) { write(Level::warning, message); }
void error(const std::string& message) { write(Level::error, message); }

}  // namespace trainer::log
