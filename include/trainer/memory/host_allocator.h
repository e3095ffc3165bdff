// Memory for tensors on the CPU: counted, bounded by a limit, and kept for the next tensor of its size. The
// system hands out fresh pages of zeros for every large tensor, and a training step makes thousands of these:
// a quarter of a step's time went into page faults. So what a run has once needed stays.
#pragma once

#include <cstdint>

namespace trainer {

// From now on LibTorch takes the memory of CPU tensors from here. Freed blocks of 256 KB and more are kept
// for tensors of about their size; blocks in use and kept together never exceed the highest use so far by
// more than 32 MB, so that keeping adds nothing to the process's peak, and never the limit. Call once, before
// the first tensor.
void install_host_allocator();

// What an allocation of so many bytes counts for: whole cache lines. The same bytes on every machine and in
// every run, so that a plan and a limit are exact.
constexpr int64_t charged_bytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

struct HostMemory {
  int64_t in_use = 0;       // charged bytes of living tensors, and what HostCharge adds
  int64_t peak = 0;         // the highest in_use since the last reset_host_peak()
  int64_t kept = 0;         // bytes of free blocks that wait for their next tensor
  int64_t limit = 0;        // 0: none
  int64_t allocations = 0;  // so far
};
HostMemory host_memory();
void reset_host_peak();

// An allocation that would bring in_use above `bytes` throws c10::OutOfMemoryError and leaves everything as
// it was. 0: no limit. What is in use already stays.
void set_host_limit(int64_t bytes);

// What the last allocation that failed was told, on this thread or another; -1 where it is not known.
struct HostShortage {
  int64_t asked = -1, free = -1, allocated = -1;  // bytes
};
HostShortage last_host_shortage();

// Counts memory that tensors use and that was not allocated here (a mapped file) as in use, as long as it
// lives.
class HostCharge {
 public:
  explicit HostCharge(int64_t bytes);  // throws c10::OutOfMemoryError where the limit does not allow it
  ~HostCharge();
  HostCharge(const HostCharge&) = delete;
  HostCharge& operator=(const HostCharge&) = delete;

 private:
  int64_t bytes_;
};

// For tests: the n-th allocation from now (1: the next) fails as if memory were short, and with `then` also
// the `then`-th after that. 0: none fails.
void fail_host_allocation(int64_t n, int64_t then = 0);

}  // namespace trainer
