#include "base/ask_python.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trainer {
namespace {

namespace fs = std::filesystem;

// The working directory does not count: a folder of that name in it is none that was installed.
constexpr const char* kWhereIsIt =
    "import sys\n"
    "sys.path = [p for p in sys.path if p]\n"
    "import importlib.util as u\n"
    "s = u.find_spec(sys.argv[1])\n"
    "print((s.submodule_search_locations or [''])[0] if s else '', end='')\n";

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t bytes = ::read(descriptor, part.data(), part.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return text;
    text.append(part.data(), static_cast<size_t>(bytes));
  }
}

}  // namespace

std::string python_of(const fs::path& packages) {
  const std::string version = packages.parent_path().filename().string();
  if (!version.starts_with("python3.")) return "python3";
  const fs::path programs = packages.parent_path().parent_path().parent_path() / "bin";
  for (const std::string& name : {std::string("python3"), version}) {
    if (::access((programs / name).c_str(), X_OK) == 0) return programs / name;
  }
  return version;
}

std::string package_in(const std::string& python, const std::string& package) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const char* arguments[] = {python.c_str(), "-c", kWhereIsIt, package.c_str(), nullptr};
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, python.c_str(), &actions, nullptr, const_cast<char**>(arguments), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  const std::string said = failed == 0 ? read_all(ends[0]) : "";
  ::close(ends[0]);
  int status = 0;
  while (failed == 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return said;
}

}  // namespace trainer
