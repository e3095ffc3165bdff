#include "cli/open_core.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include <climits>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/ask_python.h"
#include "base/switches.h"
#include "config/cards.h"

namespace trainer::cli {
namespace {

// Finds LibTorch for a program that is not where it was built. A folder that holds it is a torch package of
// Python (site-packages/torch) or an unpacked LibTorch; the functions return it without symbolic links.
//
// All throw InstallationError, with what to do, for a folder with another version than the program was built
// with or without the library.

// The library in such a folder.
inline constexpr const char* kTorchLibrary = "lib/libtorch_cpu.so";

namespace fs = std::filesystem;

// The folder of a wheel's files among the packages of a Python environment.
constexpr const char* kFolderOfWheel = "trainer_program";
constexpr const char* kAgain = "--force-reinstall ";
constexpr const char* kBuiltFor = TRAINER_LIBTORCH_VERSION;  // "2.11"

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Without an NVIDIA driver the torch of PyPI, which is for CUDA, would be 5 GB for nothing.
std::string install_with(const std::string& python, const char* options = "") {
  const bool has_driver = is_there("/proc/driver/nvidia/version") || is_there("/dev/nvidiactl");
  return concat(python, " -m pip install ", options, "'torch==", kBuiltFor, ".*'",
                has_driver ? "" : " --index-url https://download.pytorch.org/whl/cpu");
}

// Is the folder the package of a Python environment, and not an unpacked LibTorch?
bool is_package(const fs::path& torch) {
  return is_there(torch / "__init__.py") || torch.parent_path().filename().string().ends_with("-packages");
}

std::string advice_for(const fs::path& torch, const char* options) {
  if (is_package(torch)) return concat("run: ", install_with(python_of(torch.parent_path()), options));
  return concat("unpack LibTorch ", kBuiltFor, " there, or set TORCH_DIR to the folder of one");
}

[[noreturn]] void refuse_version(const fs::path& torch, const std::string& version,
                                 const std::string& named_by) {
  throw InstallationError(concat(named_by, torch.string(), " is LibTorch ", version,
                                 ", and this trainer was built for ", kBuiltFor, "; ",
                                 advice_for(torch, "")));
}

// "2.11.0+cu130" out of the files in which the forms of LibTorch keep it; "" if there is none.
std::string version_of(const fs::path& torch) {
  static const std::regex number("(?:^|__version__ *= *['\"])([0-9]+\\.[0-9]+[0-9A-Za-z.+]*)");
  for (const char* name : {"version.py", "build-version"}) {
    std::ifstream file(torch / name);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (std::smatch found; std::regex_search(text, found, number)) return found[1];
  }
  return "";
}

bool is_built_for(const std::string& version) {
  const std::string start = kBuiltFor;
  return version.starts_with(start) && (version.size() == start.size() || version[start.size()] == '.');
}

// Returns `folder` if it holds a LibTorch that the program can use.
fs::path checked(const fs::path& folder, const std::string& named_by) {
  std::error_code failed;
  const fs::path torch = fs::canonical(folder, failed);
  if (failed) throw InstallationError(concat(named_by, folder.string(), ": ", failed.message()));
  const std::string version = version_of(torch);
  if (!version.empty() && !is_built_for(version)) refuse_version(torch, version, named_by);
  if (!is_there(torch / kTorchLibrary)) {
    throw InstallationError(
        concat(named_by, torch.string(), " has no ", kTorchLibrary, "; ", advice_for(torch, kAgain)));
  }
  if (version.empty()) {
    throw InstallationError(concat(named_by, torch.string(),
                                   " does not say its version, in version.py or build-version; ",
                                   advice_for(torch, kAgain)));
  }
  return torch;
}

// Returns the folder of Python packages that pip has installed the program in; "" for other installations.
fs::path packages_around(const fs::path& prefix) {
  return prefix.filename() == kFolderOfWheel ? prefix.parent_path() : fs::path();
}

// Returns the command that mends a LibTorch in `folder` that cannot be opened.
std::string torch_advice(const fs::path& folder) { return advice_for(folder, kAgain); }

// Checks a LibTorch that the loader has found by itself; passes if the version is not known.
void check_version(const fs::path& folder) {
  const std::string version = version_of(folder);
  if (!version.empty() && !is_built_for(version)) refuse_version(folder, version, "");
}

// Returns the LibTorch that the environment variable TORCH_DIR names; nullopt if it is not set or empty.
std::optional<fs::path> torch_by_name() {
  const char* named = std::getenv("TORCH_DIR");
  if (named == nullptr || *named == '\0') return std::nullopt;
  return checked(named, "TORCH_DIR: ");
}

// Returns the LibTorch that belongs to the program installed in `prefix`: the package torch beside it where
// pip has installed both, else a folder libtorch in `prefix` or beside it. nullopt if there is none.
std::optional<fs::path> torch_beside(const fs::path& prefix) {
  std::vector<fs::path> places{prefix / "libtorch", prefix.parent_path() / "libtorch"};
  if (const fs::path packages = packages_around(prefix); !packages.empty()) places = {packages / "torch"};
  for (const fs::path& place : places) {
    if (is_there(place)) return checked(place, "");
  }
  return std::nullopt;
}

// Returns what `import torch` would load in the Python that the program was installed with, else in the first
// python3 on the PATH. Throws if there is none.
fs::path torch_of_python(const fs::path& prefix) {
  const fs::path packages = packages_around(prefix);
  const std::string python = packages.empty() ? "python3" : python_of(packages);
  if (const std::string found = package_in(python, "torch"); !found.empty()) return checked(found, "");
  const std::string where = packages.empty() ? concat("in ", prefix.string(), "/libtorch")
                                             : concat("among the packages of ", packages.string());
  throw InstallationError(concat("there is no LibTorch: not ", where, ", and ", python,
                                 " has no torch. Run: ", install_with(python),
                                 ", or set TORCH_DIR to a folder with LibTorch ", kBuiltFor,
                                 " (…/site-packages/torch, or one that was unpacked)"));
}

bool is_open = false;

void set_default(const char* name, const std::string& value) { setenv(name, value.c_str(), /*overwrite=*/0); }

// LibTorch reads the first name and, where it is not set, the second; versions before 2.9 only the second.
constexpr const char* kAllocatorNames[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"};

// A setting that the user has given under either name is set under both.
void set_allocator(const MemoryConfig& memory) {
  std::string settings = allocator_settings(memory);
  for (const char* name : {kAllocatorNames[1], kAllocatorNames[0]}) {
    if (const char* given = std::getenv(name)) settings = given;
  }
  if (settings.empty()) return;
  for (const char* name : kAllocatorNames) set_default(name, settings);
}

void set_environment(int64_t num_threads, const MemoryConfig& memory) {
  // Waiting threads spin for some 50 us, about the pause between two operators, and then sleep: those that
  // sleep at once cost a step 12 % in wake-ups, those that always spin take the processor from the threads
  // that read the data.
  set_default("OMP_WAIT_POLICY", "PASSIVE");
  set_default("GOMP_SPINCOUNT", "10000");
  if (num_threads > 0) set_default("OMP_NUM_THREADS", std::to_string(num_threads));
  // oneDNN and LibTorch's layer above it keep compiled kernels by shape, 1024 each: with samples of many
  // lengths that is 400 MB and more. 256 hold the shapes of a few steps.
  set_default("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256");
  set_default("LRU_CACHE_CAPACITY", "256");
  set_allocator(memory);
}

// Where a switch is read, a value that it does not know would be none.
void refuse_unknown_switches() {
  for (const SwitchValues& one : all_switches()) {
    const char* const value = std::getenv(one.name);
    if (value == nullptr || *value == '\0' || std::ranges::find(one.values, value) != one.values.end())
      continue;
    const std::vector<std::string> values(one.values.begin(), one.values.end());
    throw ConfigError(concat("environment variable ", one.name, "=", value, ": must be ",
                             join(values, " or "), ", or not be set"));
  }
}

struct Place {
  fs::path library;
  std::optional<fs::path> prefix;  // the folder that it is installed in
};

// Beside the program in a build folder, in the library folder of the same prefix where it is installed.
Place find_library(const std::string& name) {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path beside = folder / name;
  const fs::path installed = (folder / TRAINER_LIBRARY_FOLDER / name).lexically_normal();
  if (fs::exists(beside)) return {beside, std::nullopt};
  if (fs::exists(installed)) return {installed, folder.parent_path()};
  throw InstallationError(concat(name, " is neither in ", folder.string(), " nor in ",
                                 installed.parent_path().string(), "; build or install the program again"));
}

[[noreturn]] void refuse_library(const fs::path& path, const std::string& reason,
                                 const std::string& advice = "") {
  const bool no_memory = reason.find("failed to map segment") != std::string::npos ||
                         reason.find("cannot map zero-fill pages") != std::string::npos ||
                         reason.find("cannot create ") != std::string::npos ||
                         reason.find("annot allocate memory") != std::string::npos;
  const std::string message = concat("cannot open ", path.string(), ": ", reason);
  if (!no_memory) throw InstallationError(advice.empty() ? message : concat(message, "; ", advice));
  throw of_family(
      ErrorCode::oom_host,
      OutOfMemoryError(concat(
          message, "\nOut of memory: it does not fit into the memory that is allowed (ulimit -v or -d)")));
}

void* open(const fs::path& library) { return dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL); }

bool is_torch_missing(const std::string& reason) {
  const bool of_torch = reason.starts_with("libtorch_cpu.so:") || reason.starts_with("libc10.so:");
  return of_torch && reason.find("cannot open shared object file") != std::string::npos;
}

// Once LibTorch is open, the loader gives it to every library that names it, ours among them.
void open_torch(const fs::path& torch) {
  const fs::path library = torch / kTorchLibrary;
  if (open(library) == nullptr) refuse_library(library, dlerror(), torch_advice(torch));
}

// The folder of the LibTorch that is open.
fs::path loaded_torch() {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  char folder[PATH_MAX] = "";
  if (library == nullptr || dlinfo(library, RTLD_DI_ORIGIN, folder) != 0) return {};
  return fs::path(folder).parent_path();
}

void* open_library() {
  const auto [path, prefix] = find_library(TRAINER_CORE_LIBRARY);
  std::optional<fs::path> torch = torch_by_name();
  if (!torch && prefix) torch = torch_beside(*prefix);
  if (torch) open_torch(*torch);
  if (void* library = open(path)) {
    check_version(loaded_torch());
    return library;
  }
  const std::string reason = dlerror();
  if (!is_torch_missing(reason)) refuse_library(path, reason);
  // Neither where it was built with, nor where the system looks.
  open_torch(torch_of_python(prefix.value_or(path.parent_path())));
  if (void* library = open(path)) return library;
  refuse_library(path, dlerror());
}

}  // namespace

void run_in_library(const char* command, void* options, int64_t num_threads, const MemoryConfig& memory) {
  refuse_unknown_switches();
  set_environment(num_threads, memory);
  void* library = open_library();
  is_open = true;
  const auto run = reinterpret_cast<decltype(&trainer_core_run)>(dlsym(library, "trainer_core_run"));
  if (run == nullptr || run(command, options) != 0)
    throw InstallationError(
        concat(TRAINER_CORE_LIBRARY, " has no command ", command,
               ": it belongs to another version of the program; build or install both again"));
}

bool core_is_open() { return is_open; }

void* function_of_library(const std::string& library, const char* function, const std::string& advice) {
  const fs::path path = find_library(library).library;
  void* opened = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (opened == nullptr) refuse_library(path, dlerror(), advice);
  if (void* found = dlsym(opened, function)) return found;
  throw InstallationError(
      concat(path.string(), " belongs to another version of the program; build or install both again"));
}

}  // namespace trainer::cli
