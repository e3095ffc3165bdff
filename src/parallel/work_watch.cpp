#include "parallel/work_watch.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include "base/purposeful_wait.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kThreadsOfThis = "/proc/self/task";

// Calls `use` with the number and the folder of each thread of this process.
template <class Use>
void for_each_thread(const Use& use) {
  std::error_code error;
  for (fs::directory_iterator at(kThreadsOfThis, error), end; !error && at != end; at.increment(error))
    use(std::strtoll(at->path().filename().c_str(), nullptr, 10), at->path());
}

// Bytes that came from a disk or a network file system.
int64_t bytes_read() {
  std::ifstream in("/proc/self/io");
  for (std::string name; in >> name;) {
    int64_t value = 0;
    if (in >> value && name == "read_bytes:") return value;
  }
  return 0;
}

}  // namespace

void WorkWatch::begin() {
  const auto own = static_cast<int64_t>(::gettid());
  for_each_thread([&](int64_t thread, const fs::path&) {
    if (thread != own) others_.insert(thread);
  });
  looked_ = std::chrono::steady_clock::now();
  watches_ = true;
}

std::optional<WorkWatch::Done> WorkWatch::done() const {
  Done done;
  bool is_known = true;
  for_each_thread([&](int64_t thread, const fs::path& folder) {
    if (others_.contains(thread)) return;
    int64_t nanoseconds = 0;
    std::ifstream in(folder / "schedstat");
    if (in >> nanoseconds) {
      done.nanoseconds += nanoseconds;
    } else {
      is_known = is_known && !fs::exists(folder);  // or the thread has just ended
    }
  });
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  done.reads = used.ru_majflt + bytes_read();
  return is_known ? std::optional(done) : std::nullopt;
}

double WorkWatch::idle_seconds() {
  constexpr double kMost = 2;          // seconds that one look may count
  constexpr double kComputes = 0.002;  // of the time; what only shows progress needs less
  if (!watches_) return 0;
  const auto now = std::chrono::steady_clock::now();
  const double passed = std::min(std::chrono::duration<double>(now - looked_).count(), kMost);
  looked_ = now;
  const std::optional<Done> seen = done();
  if (!seen) return idle_ = 0;
  // Threads that have ended take their time with them.
  const double computed = static_cast<double>(std::abs(seen->nanoseconds - last_.nanoseconds)) / 1e9;
  const bool is_busy = PurposefulWait::any() || computed > kComputes * passed || seen->reads != last_.reads;
  last_ = *seen;
  idle_ = is_busy ? 0 : idle_ + passed;
  return idle_;
}

}  // namespace trainer
