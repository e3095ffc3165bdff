#include "base/child_process.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>
#include <utility>

namespace trainer {
namespace {

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::vector<std::string> environment_variables() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; variable++) variables.emplace_back(*variable);
  return variables;
}

int start_child(std::vector<std::string> command, std::vector<std::string> variables, const ChildFiles& given,
                pid_t& child) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t how;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, given.input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, given.output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, given.errors, STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  ::posix_spawnattr_init(&how);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  ::posix_spawnattr_setsigdefault(&how, &all);
  ::posix_spawnattr_setsigmask(&how, &none);
  ::posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  const int failed = ::posix_spawnp(&child, command.front().c_str(), &files, &how,
                                    pointers_to(command).data(), pointers_to(variables).data());
  ::posix_spawnattr_destroy(&how);
  ::posix_spawn_file_actions_destroy(&files);
  return failed;
}

int start_child(std::vector<std::string> command, std::vector<std::string> variables, int input,
                const std::filesystem::path& output, pid_t& child) {
  const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return errno;
  const int failed = start_child(std::move(command), std::move(variables), {input, file, file}, child);
  ::close(file);
  return failed;
}

}  // namespace trainer
