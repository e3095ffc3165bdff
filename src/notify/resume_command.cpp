#include "notify/resume_command.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string_view>
#include <vector>

#include "trainer/base/strings.h"

#include "config/webhook.h"

namespace trainer {
namespace {

std::vector<std::string> arguments_of_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("_-./=:,@%+").find(c) != std::string_view::npos;
}

std::string quoted(const std::string& argument) {
  if (!argument.empty() && std::ranges::all_of(argument, is_plain)) return argument;
  std::string out = "'";
  for (const char c : argument) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

bool begins_anew(const std::string& argument) {
  return argument.starts_with("overwrite_output_dir=") || argument.starts_with("resume=");
}

}  // namespace

std::string resume_command() {
  std::vector<std::string> arguments = arguments_of_process();
  if (arguments.empty() || !("/" + arguments[0]).ends_with("/trainer")) return "";
  std::erase_if(arguments, begins_anew);
  for (std::string& argument : arguments) argument = quoted(shown_override(argument));
  return join(arguments, " ");
}

}  // namespace trainer
