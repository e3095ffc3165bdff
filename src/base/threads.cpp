#include "base/threads.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <set>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/memory_room.h"

namespace trainer {
namespace {

// A thread's stack is memory, too.
constexpr const char* kLimits =
    "see ulimit -u, or pids.max of a container; or there is no memory for a thread, see ulimit -v and -d";

}  // namespace

int64_t start_threads(std::vector<std::jthread>& threads, int64_t count,
                      const std::function<void(int64_t)>& work) {
  threads.reserve(threads.size() + static_cast<size_t>(count));
  for (int64_t i = 0; i < count; i++) {
    if (!is_room_for_threads(1)) return i;
    try {
      threads.emplace_back([work, i] { work(i); });
    } catch (const std::exception&) {  // no thread, or no memory for one
      return i;
    }
  }
  return count;
}

void warn_of_fewer_threads(const std::string& key, int64_t given, int64_t wanted) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard lock(mutex);
  if (!warned.insert(key).second) return;
  log::warning(concat(key, ": the system gives ", given, " of ", wanted, " threads (", kLimits,
                      "); the run continues with them"));
}

void require_threads(int64_t count, const std::string& key) {
  std::atomic<bool> done = false;
  int64_t started = 0;
  {
    std::vector<std::jthread> threads;
    started = start_threads(threads, count, [&done](int64_t) { done.wait(false); });
    done = true;
    done.notify_all();
  }
  if (started < count) throw_no_threads(key, count, started);
}

void throw_no_threads(const std::string& key, int64_t wanted, int64_t given) {
  require_room_for_threads(wanted - given, key);  // where memory is limited, that is the reason
  throw of_family(ErrorCode::no_threads, ConfigError(concat(key, ": the system gives ", given, " of the ",
                                                            wanted, " threads asked for (", kLimits,
                                                            "); ask for fewer, or raise the limit")));
}

}  // namespace trainer
