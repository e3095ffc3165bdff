#include "cli/find_torch.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <vector>

#include "trainer/base/strings.h"

#include "base/ask_python.h"
#include "cli/installation_error.h"

namespace trainer::cli {
namespace {

namespace fs = std::filesystem;

// The folder of a wheel's files among the packages of a Python environment.
constexpr const char* kFolderOfWheel = "trainer_program";
constexpr const char* kAgain = "--force-reinstall ";
constexpr const char* kBuiltFor = TRAINER_LIBTORCH_VERSION;  // "2.11"

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string install_with(const std::string& python, const char* options = "") {
  return concat(python, " -m pip install ", options, "'torch==", kBuiltFor, ".*'");
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

// Where pip has put the program: the folder of the environment's packages; "" for other installations.
fs::path packages_around(const fs::path& prefix) {
  return prefix.filename() == kFolderOfWheel ? prefix.parent_path() : fs::path();
}

}  // namespace

std::string torch_advice(const fs::path& folder) { return advice_for(folder, kAgain); }

void check_version(const fs::path& folder) {
  const std::string version = version_of(folder);
  if (!version.empty() && !is_built_for(version)) refuse_version(folder, version, "");
}

std::optional<fs::path> torch_by_name() {
  const char* named = std::getenv("TORCH_DIR");
  if (named == nullptr || *named == '\0') return std::nullopt;
  return checked(named, "TORCH_DIR: ");
}

std::optional<fs::path> torch_beside(const fs::path& prefix) {
  std::vector<fs::path> places{prefix / "libtorch", prefix.parent_path() / "libtorch"};
  if (const fs::path packages = packages_around(prefix); !packages.empty()) places = {packages / "torch"};
  for (const fs::path& place : places) {
    if (is_there(place)) return checked(place, "");
  }
  return std::nullopt;
}

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

}  // namespace trainer::cli
