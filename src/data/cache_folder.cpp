#include "data/cache_folder.h"

#include <chrono>
#include <cstdlib>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kUnfinished = ".unfinished";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// What a process that was killed could not remove.
void remove_litter(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.find(kUnfinished) == std::string::npos) continue;
    const auto age = fs::file_time_type::clock::now() - at->last_write_time(error);
    if (error || age < std::chrono::hours(24)) continue;
    try {
      delete_entry(at->path());
    } catch (const FormatError& e) {  // of another user
      log::debug(e.what());
    }
  }
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
  remove_litter(path.parent_path());
  fs::path unfinished = path;
  unfinished += concat(kUnfinished, "-", ::getpid());
  write_atomically(unfinished, write);
  move_entry(unfinished, path);
}

}  // namespace trainer
