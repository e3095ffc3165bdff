#include "base/stderr_sink.h"

#include <array>
#include <ctime>
#include <string>

#include "trainer/base/strings.h"

#include "base/fitted_line.h"
#include "base/live_lines.h"
#include "base/seconds_since.h"
#include "base/terminal.h"

namespace trainer {
namespace {

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

}  // namespace

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

}  // namespace trainer
