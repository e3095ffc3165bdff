#include "cli/open_core.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <optional>
#include <string>

#include <climits>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "cli/find_torch.h"
#include "cli/installation_error.h"
#include "config/allocator_settings.h"

namespace trainer::cli {
namespace {

namespace fs = std::filesystem;

bool is_open = false;

void set_default(const char* name, const std::string& value) { setenv(name, value.c_str(), /*overwrite=*/0); }

// LibTorch reads the first name and, where it is not set, the second; versions before 2.9 only the second.
constexpr const char* kAllocatorNames[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"};

// What the user has set under either name counts, under both.
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

struct Place {
  fs::path library;
  std::optional<fs::path> prefix;  // where it is installed
};

// Beside the program in a build folder, in the library folder of the same prefix where it is installed.
Place find_library() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path beside = folder / TRAINER_CORE_LIBRARY;
  const fs::path installed = (folder / TRAINER_LIBRARY_FOLDER / TRAINER_CORE_LIBRARY).lexically_normal();
  if (fs::exists(beside)) return {beside, std::nullopt};
  if (fs::exists(installed)) return {installed, folder.parent_path()};
  throw InstallationError(concat(TRAINER_CORE_LIBRARY, " is neither in ", folder.string(), " nor in ",
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

template <class Function>
Function find(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) {
    throw InstallationError(
        concat(TRAINER_CORE_LIBRARY, " has no ", name,
               ": it belongs to another version of the program; build or install both again"));
  }
  return reinterpret_cast<Function>(symbol);
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
  const auto [path, prefix] = find_library();
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

Core open_core(int64_t num_threads, const MemoryConfig& memory) {
  set_environment(num_threads, memory);
  void* library = open_library();
  is_open = true;
  return {find<decltype(Core::train)>(library, "trainer_core_train"),
          find<decltype(Core::generate)>(library, "trainer_core_generate"),
          find<decltype(Core::eval)>(library, "trainer_core_eval"),
          find<decltype(Core::export_model)>(library, "trainer_core_export"),
          find<decltype(Core::doctor)>(library, "trainer_core_doctor"),
          find<decltype(Core::plan)>(library, "trainer_core_plan"),
          find<decltype(Core::data)>(library, "trainer_core_data"),
          find<decltype(Core::init)>(library, "trainer_core_init")};
}

bool core_is_open() { return is_open; }

}  // namespace trainer::cli
