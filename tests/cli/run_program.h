// Runs the built program as a user would.
#pragma once

#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "support/temporary_directory.h"

namespace trainer::test {

struct Outcome {
  int exit_code;
  std::string out, err;
};

inline std::string content_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

inline void redirect(const std::filesystem::path& path, int flags, int descriptor) {
  const int file = ::open(path.c_str(), flags, 0600);
  if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(126);
}

// `input` is what it reads on stdin.
inline Outcome run_program(const std::vector<std::string>& arguments, const std::string& input = "") {
  const TemporaryDirectory directory;
  const std::string program = BUILD_DIR "/trainer";
  std::ofstream(directory / "in") << input;
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    redirect(directory / "in", O_RDONLY, STDIN_FILENO);
    redirect(directory / "out", O_WRONLY | O_CREAT, STDOUT_FILENO);
    redirect(directory / "err", O_WRONLY | O_CREAT, STDERR_FILENO);
    ::execv(program.c_str(), words.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content_of(directory / "out"),
          content_of(directory / "err")};
}

}  // namespace trainer::test
