#include "base/mapping_faults.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unistd.h>
#include <utility>

#include "base/mapping_table.h"

namespace trainer {
namespace {

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
