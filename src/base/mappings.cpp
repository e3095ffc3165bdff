#include "base/mappings.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/memory_room.h"

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
    if (!is_room_for_threads(1)) return;
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

struct Mapping {
  std::atomic<uintptr_t> begin = 0, end = 0;  // begin 0: unused entry
  std::atomic<int> code = 0;
  // Written before `begin` and freed after it, so that whoever finds the entry can read it. On the heap: the
  // program must start within little memory.
  char* path = nullptr;
};

constexpr size_t kMappings = 4096;
std::array<Mapping, kMappings> mappings;
std::mutex writing;
struct sigaction before {};
static_assert(std::atomic<uintptr_t>::is_always_lock_free);

Mapping* find(uintptr_t address) {
  for (Mapping& mapping : mappings) {
    const uintptr_t begin = mapping.begin;
    if (begin != 0 && begin <= address && address < mapping.end) return &mapping;
  }
  return nullptr;
}

void say(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody listens
}

// Uses only functions that are allowed in a signal handler.
void on_fault(int, siginfo_t* info, void*) {
  const Mapping* mapping = find(reinterpret_cast<uintptr_t>(info->si_addr));
  if (mapping == nullptr) {  // not ours: the instruction fails again, under the previous handler
    ::sigaction(SIGBUS, &before, nullptr);
    return;
  }
  say("\ntrainer: error: ");
  say(mapping->path != nullptr ? mapping->path : "a file");
  say(": was cut short, or its disk failed, while it was read; the run ends here\n");
  ::_exit(mapping->code);
}

void install() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGBUS, &action, &before);
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

void note_mapping(const void* begin, size_t size, const char* path) {
  static std::once_flag installed;
  std::call_once(installed, install);
  const std::lock_guard lock(writing);
  for (Mapping& mapping : mappings) {
    if (mapping.begin != 0) continue;
    mapping.path = ::strdup(path);
    mapping.code = static_cast<int>(ExitCode::files);
    mapping.end = reinterpret_cast<uintptr_t>(begin) + size;
    mapping.begin = reinterpret_cast<uintptr_t>(begin);
    return;
  }
}

void forget_mapping(const void* begin) {
  const std::lock_guard lock(writing);
  Mapping* mapping = find(reinterpret_cast<uintptr_t>(begin));
  if (mapping == nullptr) return;
  mapping->begin = 0;
  std::free(std::exchange(mapping->path, nullptr));
}

void set_fault_code(const MappedFile& file, ExitCode code) {
  const std::lock_guard lock(writing);
  if (Mapping* mapping = find(reinterpret_cast<uintptr_t>(file.data())))
    mapping->code = static_cast<int>(code);
}

}  // namespace trainer
