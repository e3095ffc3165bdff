#include "data/parquet_library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <mutex>

#include <climits>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/ask_python.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libtrainer_parquet.so";
constexpr const char* kArrow = "libarrow.so.";

// The folder of the library that holds this function.
fs::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&read_parquet), &info) == 0) return {};
  std::error_code ignored;
  return fs::weakly_canonical(info.dli_fname, ignored).parent_path();
}

// The packages around the torch that is in use: P of P/torch/lib/libtorch_cpu.so.
fs::path packages_of_torch() {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  char folder[PATH_MAX] = "";
  const bool found = dlinfo(library, RTLD_DI_ORIGIN, folder) == 0;
  dlclose(library);
  return found ? fs::path(folder).parent_path().parent_path() : fs::path();
}

// "25.0" for a folder with libarrow.so.2500; "" for one without Arrow's library.
std::string version_in(const fs::path& pyarrow) {
  std::error_code failed;
  std::string version;
  for (fs::directory_iterator entry(pyarrow, failed), end; !failed && entry != end; entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kArrow)) continue;
    const int abi = std::atoi(name.c_str() + std::string(kArrow).size());
    if (std::to_string(abi) == kArrowAbi) return kPyarrowVersion;
    if (abi > 0) version = concat(abi / 100, ".", abi % 100);
  }
  return version;
}

struct Arrow {
  fs::path folder;
  std::string python;  // the Python that it belongs to
};

// Looks at the places in turn; `others` gets those of other versions.
Arrow find_arrow(std::string& others) {
  std::string python = "python3";
  const auto fits = [&](const fs::path& folder) {
    const std::string version = folder.empty() ? "" : version_in(folder);
    const bool known = others.find(folder.string()) != std::string::npos;
    if (!version.empty() && version != kPyarrowVersion && !known)
      others += concat(others.empty() ? "" : ", ", folder.string(), " is ", version);
    return version == kPyarrowVersion;
  };
  if (const char* named = std::getenv("PYARROW_DIR"); named != nullptr && *named != '\0')
    return {fits(named) ? named : "", python};
  for (const fs::path& packages : {packages_of_torch(), own_folder().parent_path().parent_path()}) {
    if (packages.empty()) continue;
    if (fits(packages / "pyarrow")) return {packages / "pyarrow", ""};
    if (packages.filename().string().ends_with("-packages") && python == "python3")
      python = python_of(packages);
  }
  if (const fs::path found = package_in(python, "pyarrow"); fits(found)) return {found, ""};
  return {"", python};
}

void* open(const fs::path& library) {
  void* opened = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (opened == nullptr)
    throw of_family(ErrorCode::parquet,
                    DataError(concat("cannot be read: ", library.string(), ": ", dlerror())));
  return opened;
}

using ReadParquet = decltype(&trainer_read_parquet);

ReadParquet open_parquet_library() {
  const fs::path library = own_folder() / kLibrary;
  std::error_code ignored;
  if (!fs::exists(library, ignored))
    throw of_family(
        ErrorCode::parquet,
        DataError(concat("this trainer was built without Parquet: there is no ", library.string(),
                         "; build it with pyarrow ", kPyarrowVersion, ", or write the rows as JSON lines")));
  std::string others;
  const Arrow arrow = find_arrow(others);
  if (arrow.folder.empty()) {
    throw of_family(ErrorCode::parquet,
                    DataError(concat("Parquet files are read with the libraries of pyarrow ", kPyarrowVersion,
                                     ", and ", others.empty() ? "there is no pyarrow" : others, "; run: ",
                                     arrow.python, " -m pip install 'pyarrow==", kPyarrowVersion, "'")));
  }
  // Once they are open, the loader gives them to the library that names them.
  for (const char* name : {"libarrow.so.", "libparquet.so."}) open(arrow.folder / concat(name, kArrowAbi));
  void* symbol = dlsym(open(library), kReadParquet);
  if (symbol == nullptr)
    throw of_family(
        ErrorCode::parquet,
        DataError(concat(library.string(), " belongs to another version of the program; install it again")));
  return reinterpret_cast<ReadParquet>(symbol);
}

}  // namespace

void read_parquet(ParquetJob& job) {
  static std::mutex mutex;
  static ReadParquet read = nullptr;
  {
    const std::lock_guard lock(mutex);
    if (read == nullptr) read = open_parquet_library();
  }
  read(&job);
}

}  // namespace trainer
