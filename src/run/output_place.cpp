#include "run/output_place.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <pwd.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "trainer/base/strings.h"
#include "trainer/formats/run_position.h"

#include "base/file_facts.h"
#include "run/earlier_results.h"
#include "run/output_directory.h"

namespace trainer {
namespace fs = std::filesystem;

bool lies_below(const fs::path& path, const fs::path& directory) {
  const fs::path inner = fs::weakly_canonical(path), outer = fs::weakly_canonical(directory);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

namespace {

// The home directories that this user may mean.
std::vector<fs::path> homes() {
  std::vector<fs::path> found;
  if (const char* home = std::getenv("HOME")) found.emplace_back(home);
  if (const passwd* user = ::getpwuid(::geteuid())) found.emplace_back(user->pw_dir);
  return found;
}

// Returns what the directory is for, if it is not for a run: "your home directory"; else "".
std::string other_purpose(const fs::path& directory) {
  static constexpr std::array kSystem{"/bin", "/boot",  "/dev",       "/dev/shm", "/etc",    "/home",
                                      "/lib", "/lib64", "/opt",       "/root",    "/run",    "/sbin",
                                      "/tmp", "/usr",   "/usr/local", "/var",     "/var/tmp"};
  std::error_code ignored;
  const auto is = [&](const fs::path& place) { return fs::equivalent(directory, place, ignored); };
  if (std::ranges::any_of(homes(), is)) return "your home directory";
  if (std::ranges::any_of(kSystem, is)) return "a directory of the system";
  const bool is_repository = std::ranges::any_of(
      std::array{".git", ".hg", ".svn"}, [&](const char* name) { return has_entry(directory / name); });
  if (!is_repository) return "";
  return lies_below(fs::current_path(ignored), directory) ? "the root of the repository that you are in"
                                                          : "the root of a repository";
}

}  // namespace

void refuse_shared_place(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return;
  constexpr const char* kAdvice = "; choose a folder of its own, such as runs/first";
  if (fs::equivalent(directory, "/", ignored))
    throw OutputDirectoryError(
        concat("output_dir ", directory.string(), ": is the root of the file system", kAdvice));
  const std::string purpose = other_purpose(directory);
  if (purpose.empty() || has_entry(directory / kPositionFile)) return;  // or a run was there before
  if (const auto foreign = find_foreign(directory))
    throw OutputDirectoryError(concat("output_dir ", directory.string(), ": is ", purpose, " and holds '",
                                      one_line(*foreign, 80), "', which no run wrote", kAdvice));
}

}  // namespace trainer
