#include "base/release_pages.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <sys/mman.h>
#include <thread>

namespace trainer {
namespace {

constexpr uintptr_t kPage = 4096;

struct Range {
  uintptr_t begin, end;
};

// In pieces, because Linux reads no more than a disk's read-ahead for each call (mm/readahead.c). A range
// that is no longer mapped does no harm.
void read_ahead(const Range& range) {
  constexpr uintptr_t piece = 128 << 10;
  for (uintptr_t at = range.begin; at < range.end; at += piece)
    ::madvise(reinterpret_cast<void*>(at), std::min(piece, range.end - at), MADV_WILLNEED);
}

// A thread that asks the system to read: once a disk has as many requests as it takes, asking waits for it.
class Reader {
 public:
  // Returns false if there can be no thread.
  bool add(const Range& range) {
    const std::lock_guard lock(mutex_);
    if (!started_) start();
    if (!started_) return false;
    ranges_.push_back(range);
    added_.notify_one();
    return true;
  }

 private:
  void start() {
    try {
      std::thread([this] { read(); }).detach();
      started_ = true;
    } catch (const std::exception&) {  // no thread, or no memory for one
    }
  }

  [[noreturn]] void read() {
    for (;;) {
      std::unique_lock lock(mutex_);
      added_.wait(lock, [this] { return !ranges_.empty(); });
      const Range range = ranges_.front();
      ranges_.pop_front();
      lock.unlock();
      read_ahead(range);
    }
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Range> ranges_;
  bool started_ = false;
};

// Never destroyed: its thread uses it to the end of the process.
Reader& reader() {
  static auto* made = new Reader;
  return *made;
}

}  // namespace

void release_pages(std::byte* data, int64_t bytes) {
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage,
                  end = (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes)) / kPage * kPage;
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void expect_pages(std::byte* data, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const Range range{begin / kPage * kPage, begin + static_cast<uintptr_t>(bytes)};
  if (!reader().add(range)) read_ahead(range);
}

}  // namespace trainer
