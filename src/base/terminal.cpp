#include "base/terminal.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

namespace trainer {
namespace {

constexpr const char* kPlain = "TRAINER_PLAIN";

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

bool has_colour(bool is_terminal) {
  if (!variable("NO_COLOR").empty()) return false;
  const std::string_view forced = variable("CLICOLOR_FORCE");
  if (!forced.empty() && forced != "0") return true;
  return is_terminal && variable("CLICOLOR") != "0" && variable("TERM") != "dumb";
}

Terminal terminal_of(int fd) {
  winsize size{};
  const bool has_size = ::ioctl(fd, TIOCGWINSZ, &size) == 0;
  return {has_colour(/*is_terminal=*/true), has_size ? size.ws_col : size_t{0},
          has_size ? size.ws_row : size_t{0}};
}

}  // namespace

std::optional<Terminal> stdout_terminal() {
  if (::isatty(STDOUT_FILENO) != 1) return std::nullopt;
  return terminal_of(STDOUT_FILENO);
}

std::optional<Terminal> stderr_terminal() {
  if (!variable(kPlain).empty() || ::isatty(STDERR_FILENO) != 1) return std::nullopt;
  if (const std::string_view kind = variable("TERM"); kind.empty() || kind == "dumb") return std::nullopt;
  return terminal_of(STDERR_FILENO);
}

bool stderr_has_colour() { return variable(kPlain).empty() && has_colour(::isatty(STDERR_FILENO) == 1); }

void use_plain_lines() { ::setenv(kPlain, "1", /*overwrite=*/1); }

bool locale_has_utf8() {
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (locale.empty()) locale = variable(name);
  }
  std::ranges::transform(locale, locale.begin(), [](unsigned char c) { return std::tolower(c); });
  return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
}

}  // namespace trainer
