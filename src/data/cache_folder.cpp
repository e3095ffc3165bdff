#include "data/cache_folder.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <mutex>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the days since the file was written or mark_used() was called.
int64_t days_unused(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return (std::time(nullptr) - std::max(info.st_atim.tv_sec, info.st_mtim.tv_sec)) / (24 * 60 * 60);
}

constexpr int64_t kMostDays = 90;

// A checksum, as all folders of the cache are called. data.cache may be a folder with other things in it.
bool is_of_cache(const std::string& name) {
  constexpr size_t kDigits = 16;
  return name.size() == kDigits && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Of the file that was used last.
int64_t days_all_unused(const fs::path& folder) {
  int64_t days = days_unused(folder);
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    days = std::min(days, days_unused(at->path()));
  return days;
}

// Removes unfinished files of killed processes, and files that were not used for a long time. A process that
// still has such a file mapped can continue to use it.
void tidy(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const bool unfinished = at->path().filename().string().find(kUnfinished) != std::string::npos;
    if (days_unused(at->path()) < (unfinished ? 1 : kMostDays)) continue;
    try {
      delete_entry(at->path());
    } catch (const FormatError& e) {  // another user's file
      log::debug(e.what());
    }
  }
}

// Once per folder and process: with many files, a look at the folder for each would take quadratic time.
void tidy_once(const fs::path& folder) {
  static std::mutex mutex;
  static std::set<fs::path> tidied;
  {
    const std::lock_guard lock(mutex);
    if (!tidied.insert(folder).second) return;
  }
  tidy(folder);
}

}  // namespace

fs::path cache_folder(const std::string& configured) {
  if (!configured.empty()) return configured;
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "trainer";
  if (const std::string home = environment("HOME"); !home.empty()) return fs::path(home) / ".cache/trainer";
  return fs::temp_directory_path() / concat("trainer-", ::getuid());
}

void write_to_cache(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  make_directories(path.parent_path());
  tidy_once(path.parent_path());
  fs::path unfinished = path;
  unfinished += concat(kUnfinished, "-", ::getpid());
  write_atomically(unfinished, write);
  move_entry(unfinished, path);
}

void tidy_folders(const fs::path& folder) {
  std::error_code error, ignored;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const bool is_ours = at->is_directory(ignored) && is_of_cache(at->path().filename().string());
    if (is_ours && days_all_unused(at->path()) >= kMostDays) fs::remove_all(at->path(), ignored);
  }
}

void mark_used(const fs::path& path) {
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  ::utimensat(AT_FDCWD, path.c_str(), times, 0);  // fails for another user's file; that user's runs mark it
}

}  // namespace trainer
