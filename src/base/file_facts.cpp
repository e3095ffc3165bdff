#include "base/file_facts.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <glob.h>
#include <linux/magic.h>
#include <set>
#include <string>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {

namespace fs = std::filesystem;
namespace {

[[noreturn]] void cannot_be_read(const fs::path& path, const std::error_code& error) {
  const bool dangling = error == std::errc::no_such_file_or_directory && fs::is_symlink(path);
  throw of_family(
      ErrorCode::data_file,
      DataError(concat(path.string(), ": ", dangling ? "a link to what is not there" : "cannot be read", ": ",
                       error.message(), "; repair it, or move it out of the folder")));
}

// The files below a folder. Each folder is entered once, whatever links lead to it; otherwise a link to a
// parent folder would repeat its files endlessly.
class FolderWalk {
 public:
  explicit FolderWalk(std::span<const std::string_view> endings) : endings_(endings) {}

  std::vector<fs::path> files(const fs::path& folder) {
    folders_.insert(folder);
    while (!folders_.empty() || !links_.empty()) {
      // Links come last, so that files get their own names if possible.
      std::set<fs::path>& next = folders_.empty() ? links_ : folders_;
      enter(next.extract(next.begin()).value());
    }
    return std::move(files_);
  }

 private:
  void enter(const fs::path& folder) {
    std::error_code error;
    const fs::path real = fs::canonical(folder, error);
    if (error) cannot_be_read(folder, error);
    if (!entered_.insert(real).second) return;
    fs::directory_iterator at(folder, error);
    for (; !error && at != fs::directory_iterator(); at.increment(error)) take(*at);
    if (error) cannot_be_read(folder, error);
  }

  void take(const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.')) return;
    const bool wanted =
        std::ranges::any_of(endings_, [&](std::string_view ending) { return name.ends_with(ending); });
    std::error_code error;
    const fs::file_status status = entry.status(error);
    if (fs::is_directory(status)) {
      (entry.is_symlink() ? links_ : folders_).insert(entry.path());
    } else if (wanted && fs::is_regular_file(status)) {
      files_.push_back(entry.path());
    } else if (error && (wanted || status.type() != fs::file_type::not_found)) {
      cannot_be_read(entry.path(), error);
    }
  }

  const std::span<const std::string_view> endings_;
  std::set<fs::path> folders_, links_, entered_;
  std::vector<fs::path> files_;
};

// The path that glob() could not list; its callback takes no context.
thread_local std::pair<std::string, int> unlisted;

int stop_unless_no_folder(const char* path, int error) {
  if (error == ENOTDIR || error == ENOENT) return 0;
  unlisted = {path, error};
  return 1;
}

std::vector<fs::path> matches(const std::string& pattern) {
  glob_t result{};
  std::vector<fs::path> found;
  const int outcome = ::glob(pattern.c_str(), 0, &stop_unless_no_folder, &result);
  if (outcome == GLOB_ABORTED) {
    ::globfree(&result);
    cannot_be_read(unlisted.first, {unlisted.second, std::generic_category()});
  }
  if (outcome == 0) {
    for (size_t i = 0; i < result.gl_pathc; i++) {
      std::error_code ignored;
      if (!fs::is_directory(result.gl_pathv[i], ignored)) found.emplace_back(result.gl_pathv[i]);
    }
  }
  ::globfree(&result);
  return found;
}

}  // namespace

std::vector<fs::path> find_files(const std::string& path, std::span<const std::string_view> endings) {
  std::error_code ignored;
  std::vector<fs::path> found;
  if (fs::is_directory(path, ignored)) {
    found = FolderWalk(endings).files(path);
  } else if (fs::exists(path, ignored)) {
    found.emplace_back(path);
  } else if (path.find_first_of("*?[") != std::string::npos) {
    found = matches(path);
  }
  std::ranges::sort(found);  // by bytes, whatever the user's language
  return found;
}

int64_t free_space(const std::filesystem::path& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0)
    throw FormatError(concat(path.string(), ": its free space is unknown: ", std::strerror(errno)));
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

std::filesystem::path existing_part(const std::filesystem::path& directory) {
  std::filesystem::path existing = std::filesystem::absolute(directory);
  for (std::error_code ignored; !std::filesystem::exists(existing, ignored) && existing.has_relative_path();)
    existing = existing.parent_path();
  return existing;
}

bool share_a_disk(const std::filesystem::path& one, const std::filesystem::path& other) {
  struct stat first {
  }, second{};
  return ::stat(one.c_str(), &first) == 0 && ::stat(other.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev;
}

bool lies_in_memory(const std::filesystem::path& path) {
  struct statfs info {};
  if (::statfs(path.c_str(), &info) != 0) return false;
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

std::optional<fs::path> find_shipped(const fs::path& name) {
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& from : {folder / "..", folder / ".." / "share" / "trainer"}) {
    const fs::path path = (from / name).lexically_normal();
    if (fs::exists(path, ignored)) return path;
  }
  return std::nullopt;
}

std::optional<fs::path> find_installed(const fs::path& name) {
  std::error_code ignored;
  return fs::exists(name, ignored) ? name.lexically_normal() : find_shipped(name);
}

}  // namespace trainer
