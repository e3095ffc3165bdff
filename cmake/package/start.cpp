// The `trainer` that pip puts on the PATH. It runs the program among the environment's packages,
// trainer_program/bin/trainer, in its own place: the process, its arguments and its signals stay as they are.
// Where the packages are depends on the Python, which the file does not know; hence the search.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <sys/auxv.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace {

constexpr const char* kProgram = "trainer_program/bin/trainer";
constexpr int kDamagedInstallation = 1;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// The 11 of "python3.11"; -1 for other names.
int python_version(const std::string& name) {
  int version = -1, end = 0;
  if (std::sscanf(name.c_str(), "python3.%d%n", &version, &end) != 1) return -1;
  return name[static_cast<size_t>(end)] == '\0' ? version : -1;
}

// In `library`/python3.N/site-packages or dist-packages, of the newest Python that has it; "" if none has.
fs::path find_in(const fs::path& library) {
  fs::path best;
  int newest = -1;
  std::error_code failed;
  for (fs::directory_iterator entry(library, failed), end; !failed && entry != end; entry.increment(failed)) {
    const int version = python_version(entry->path().filename().string());
    for (const char* packages : {"site-packages", "dist-packages"}) {
      const fs::path program = entry->path() / packages / kProgram;
      if (version <= newest || !is_file(program)) continue;
      best = program;
      newest = version;
    }
  }
  return best;
}

// For a file in `folder`, the bin/ of an environment, of a prefix, or of a `pip install --target`.
fs::path find_from(const fs::path& folder) {
  const fs::path prefix = folder / "..";
  for (const char* library : {"lib", "lib64", "local/lib"}) {
    if (fs::path program = find_in(prefix / library); !program.empty()) return program;
  }
  const fs::path program = prefix / kProgram;
  return is_file(program) ? program : fs::path();
}

}  // namespace

int main(int, char** argv) {
  std::error_code ignored;
  const fs::path resolved = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  // As it was called: installers may put a link to a shared copy into each environment.
  const auto* called = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  fs::path program = find_from(resolved);
  if (program.empty() && called != nullptr) program = find_from(fs::path(called).parent_path());
  if (program.empty()) {
    std::fprintf(stderr,
                 "trainer: its folder trainer_program is not among the packages of %s; install it again: "
                 "python3 -m pip install --force-reinstall --no-deps, with the wheel's file\n",
                 resolved.parent_path().c_str());
    return kDamagedInstallation;
  }
  execv(program.c_str(), argv);
  std::fprintf(stderr, "trainer: %s does not start: %s; install it again\n", program.c_str(),
               std::strerror(errno));
  return kDamagedInstallation;
}
