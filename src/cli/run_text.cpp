#include "cli/run_text.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "trainer/base/strings.h"

namespace trainer::cli {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string step_text(const RunStatus& status) {
  if (status.total_steps <= 0) return grouped(status.step);
  return concat(grouped(status.step), "/", grouped(status.total_steps), " (",
                100 * status.step / status.total_steps, " %)");
}

// The clocks of two machines differ.
std::string ago(double moment, double now) { return duration_string(std::max(0.0, now - moment)) + " ago"; }

std::string time_text(double moment) {
  const auto seconds = static_cast<std::time_t>(moment);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local);
  return text.data();
}

std::string number_text(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

}  // namespace trainer::cli
