#include "base/memory_room.h"

#include <csignal>
#include <cstring>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/ending.h"

namespace trainer {
namespace {

// What a thread allocates besides its stack, and what the others may allocate meanwhile.
constexpr int64_t kOfThread = 1 << 20, kOfOthers = 24 << 20;

bool is_limited(int resource) {
  rlimit limit{};
  return ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0 &&
         limit.rlim_cur != RLIM_INFINITY;
}

int64_t stack_of_thread() {
  constexpr int64_t kUsual = 8 << 20;
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return kUsual;
  size_t size = 0;
  const bool known = ::pthread_attr_getstacksize(&attributes, &size) == 0;
  ::pthread_attr_destroy(&attributes);
  return known ? static_cast<int64_t>(size) : kUsual;
}

// Nothing here may allocate.
extern "C" void end_after_abort(int) {
  const auto say = [](const char* text) {
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody listens
  };
  say("trainer: ");
  say(kOutOfHostMemory);
  say("\nHelp: trainer help oom-host\n");
  ::_exit(static_cast<int>(ExitCode::out_of_memory));
}

}  // namespace

bool has_memory_limit() { return is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA); }

bool is_room_for_threads(int64_t count) {
  if (count <= 0 || !has_memory_limit()) return true;
  const auto bytes = static_cast<size_t>(count * (stack_of_thread() + kOfThread) + kOfOthers);
  void* const room =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return false;
  ::munmap(room, bytes);
  return true;
}

void require_room_for_threads(int64_t count, const std::string& what) {
  if (is_room_for_threads(count)) return;
  throw of_family(
      ErrorCode::oom_host,
      OutOfMemoryError(concat("out of memory on the host: no room for the ", count, " threads of ", what,
                              ", each with a stack of ", bytes_string(stack_of_thread()),
                              "; raise the limit (ulimit -v or -d), or make the stacks smaller "
                              "(ulimit -s)")));
}

void prepare_for_memory_limit() {
  if (!has_memory_limit()) return;
  ::mallopt(M_ARENA_MAX, 1);
  std::signal(SIGABRT, end_after_abort);
}

}  // namespace trainer
