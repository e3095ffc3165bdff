// The program: finds the command, runs it, and turns what is thrown into a message and an exit code.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <new>
#include <regex>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/base/version.h"
#include "trainer/config/load.h"

#include "base/ending.h"
#include "base/foreign_errors.h"
#include "base/memory_room.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/open_core.h"
#include "cli/what_next.h"

namespace trainer::cli {
namespace {

using Arguments = std::vector<std::string>;

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  return names;
}

bool is_one_of(const std::string& text, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), text) != names.end();
}

// Without a command word `train` is meant: trainer --config X, trainer model.path=... data.train=...
Arguments with_command(Arguments arguments) {
  const auto first = std::find_if(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return !is_one_of(argument, {"--quiet", "-q", "--verbose", "-v", "--plain"});
  });
  if (first == arguments.end()) {
    throw ConfigError("no command is given; here you can type\n" + what_next("."));
  }
  if (is_one_of(*first, command_names()) || is_one_of(*first, {"--help", "-h", "--version"}))
    return arguments;
  if (!first->starts_with('-') && first->find('=') == std::string::npos) {
    if (first->ends_with(".yaml") || first->ends_with(".yml")) {
      throw ConfigError(concat("to give a configuration, write: trainer --config ", *first));
    }
    if (*first == "serve")
      throw ConfigError(
          "serve: this program serves no model; llama.cpp (llama-server) and Ollama serve the GGUF file, "
          "vLLM the "
          "directory that `trainer export` writes");
    const std::string near = closest(*first, command_names());
    throw ConfigError(
        concat("unknown command '", *first, "'; ",
               near.empty() ? "commands are " + join(command_names()) : "did you mean " + near + "?"));
  }
  arguments.insert(first, "train");
  return arguments;
}

// Keys typed as flags, as other trainers have them: --training.batch_size=4, --learning_rate 1e-4.
void refuse_keys_as_flags(const CLI::App& app, const Arguments& arguments) {
  const auto word = std::ranges::find_if(
      arguments, [](const auto& argument) { return is_one_of(argument, command_names()); });
  if (word == arguments.end()) return;
  const CLI::App* command = app.get_subcommand(*word);
  if (!takes_keys(*command)) return;
  for (size_t i = 0; i < arguments.size(); i++) {
    if (!arguments[i].starts_with("--")) continue;
    const size_t equals = arguments[i].find('=');
    const std::string flag = arguments[i].substr(0, equals), name = flag.substr(2);
    if (name.empty() || command->get_option_no_throw(flag) || app.get_option_no_throw(flag)) continue;
    std::string value;
    if (equals != std::string::npos) {
      value = arguments[i].substr(equals + 1);
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with('-')) {
      value = arguments[i + 1];
    }
    const std::string advice = advice_for_flag(name, value);
    if (!advice.empty()) throw ConfigError(concat("--", name, ": ", advice));
  }
}

// CLI11 shows the bounds of a number that only has to be positive: 0.000000 to 1797693...
std::string with_readable_range(const std::string& message) {
  static const std::regex wide(R"(Value (-?[0-9.eE+-]+) not in range \[?\S+ (to|-) 1\.?797\S*)");
  std::smatch found;
  if (!std::regex_search(message, found, wide)) return message;
  return concat(found.prefix().str(), found[1].str(),
                found[1].str().starts_with('-') ? " is negative" : " is too small: give a number above 0",
                found.suffix().str());
}

void add_general_options(CLI::App& app) {
  app.description(
      "Fine-tunes T5, Llama, Qwen, Mistral, Gemma, Phi and Granite models, all weights or with LoRA and "
      "QLoRA:\n"
      "  trainer --config FILE [key=value ...]");
  app.footer(
      "`trainer COMMAND --help` says more about a command; `trainer train --help` lists all configuration "
      "keys.");
  app.set_version_flag("--version", concat("trainer ", kVersion));
  app.add_flag_callback(
      "-q,--quiet", [] { log::set_level(log::Level::warning); }, "Warnings and errors only");
  app.add_flag_callback(
      "-v,--verbose", [] { log::set_level(log::Level::debug); }, "Also show details");
  app.add_flag_callback("--plain", use_plain_lines,
                        "No colours, and no line that changes in place: as in a pipe");
  app.require_subcommand(1);
  app.fallthrough();
}

void run(Arguments arguments) {
  CLI::App app;
  app.name("trainer");
  add_general_options(app);
  for (const Command& command : commands()) command.add(*app.add_subcommand(command.name, command.help));
  in_family(ErrorCode::command_line, [&] {
    arguments = with_command(std::move(arguments));
    refuse_keys_as_flags(app, arguments);
  });
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      throw of_family(ErrorCode::command_line,
                      ConfigError(concat(with_readable_range(error.what()), "\nSee trainer --help.")));
    app.exit(error);  // --help, --version
  }
  if (!std::cout.flush())
    throw of_family(ErrorCode::disk_full, FormatError("the output could not be written; is the disk full?"));
}

int report(const Ending& ending) {
  const int code = ending.code;
  const std::string message = ending.full_text();
  if (!ending.details.empty()) log::debug("of the internal error: " + ending.details);
  if (message.empty()) return code;  // another rank says it
  if (core_is_open()) {              // the log also goes into the run's log file
    code == static_cast<int>(ExitCode::interrupted) ? log::warning(message) : log::error(message);
  } else {
    std::cerr << "trainer: " << log::speaker() << printable(message) << std::endl;
  }
  return code;
}

// A file that is opened takes the lowest free number: without these the log would go into a file of the run.
// Read only, so that writing a result to nowhere stays an error.
void fill_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDONLY));
  }
}

// Returns the exit code and message for an exception that nobody has handled.
Ending ending_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const InstallationError& error) {
    return {kUnexpectedError, error.what(), ErrorCode::installation};
  } catch (...) {
    return trainer::ending_of(failure);
  }
}

// Ends the process after an exception that a thread or a library could not hand on. As the process is in an
// unknown state, only the message is written.
[[noreturn]] void end_with_message() noexcept {
  int code = kUnexpectedError;
  const auto say = [](const char* text) {
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody listens
  };
  say("trainer: ");
  try {
    const std::exception_ptr failure = std::current_exception();
    const Ending ending = failure
                              ? ending_of(failure)
                              : Ending{kUnexpectedError, "internal error: ended by itself; please report it",
                                       ErrorCode::internal_error};
    code = ending.code;
    say(printable(ending.full_text()).c_str());
  } catch (...) {  // no memory even for the message
    code = static_cast<int>(ExitCode::out_of_memory);
    say(kOutOfHostMemory);
  }
  say("\n");
  ::_exit(code);
}

int run_and_report(const Arguments& arguments) {
  fill_standard_descriptors();
  std::set_terminate(&end_with_message);
  prepare_for_memory_limit();
  std::signal(SIGXFSZ,
              SIG_IGN);  // a file at its size limit (ulimit -f) is an error of the write, as a full disk
  try {
    run(arguments);
    return static_cast<int>(ExitCode::done);
  } catch (...) {
    return report(ending_of(std::current_exception()));
  }
}

}  // namespace
}  // namespace trainer::cli

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  return trainer::cli::run_and_report({argv + 1, argv + argc});
}
