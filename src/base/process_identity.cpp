#include "base/process_identity.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include <climits>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

std::string first_line_of(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string link_target(const char* path) {
  std::array<char, PATH_MAX> target{};
  return ::readlink(path, target.data(), target.size() - 1) < 0 ? "" : target.data();
}

// The 22nd field of /proc/PID/stat; the second, a name, may hold blanks and ends with the last ")".
int64_t start_of(int64_t pid) {
  const std::string stat = first_line_of(concat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int i = 0; i < 20; i++) fields >> field;
  return fields ? std::strtoll(field.c_str(), nullptr, 10) : 0;
}

}  // namespace

ProcessIdentity own_identity() {
  return {host_name(), ::getpid(), first_line_of("/proc/sys/kernel/random/boot_id"),
          link_target("/proc/self/ns/pid"), start_of(::getpid())};
}

Life life_of(const ProcessIdentity& process) {
  const ProcessIdentity here = own_identity();
  if (process.host != here.host) return Life::elsewhere;
  if (!process.boot.empty() && process.boot != here.boot) return Life::dead;  // the machine was started again
  if (!process.pid_namespace.empty() && process.pid_namespace != here.pid_namespace) return Life::elsewhere;
  if (process.pid <= 0) return Life::elsewhere;
  if (::kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH) return Life::dead;
  const int64_t start = start_of(process.pid);
  return process.start != 0 && start != 0 && start != process.start ? Life::dead : Life::alive;
}

}  // namespace trainer
