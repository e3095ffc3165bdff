// The allocator of CPU tensors: it counts memory, enforces a limit, and keeps freed memory for later tensors.
// The system hands out fresh pages of zeros for every large tensor, and a training step makes thousands of
// these: a quarter of a step's time went into page faults. So a run keeps what it once needed.
#pragma once

#include <cstdint>

namespace trainer {

// From now on LibTorch allocates CPU tensors with this allocator. The memory of freed tensors of 256 KB and
// more is kept for tensors of any such size: it is cut where they are smaller, and neighbours are joined
// where they are larger. Steps of changing sizes so take fresh pages only until they have been through their
// largest one. Used and kept memory together never exceed the limit, and never exceed the highest use so far
// by more than 32 MB, so keeping adds nothing to the process's peak. A tensor takes whole 64 KB. Call once,
// before the first tensor.
void install_host_allocator();

// Returns what an allocation of this many bytes counts as: whole cache lines. It is the same on every machine
// and in every run, so that a plan and a limit are exact.
constexpr int64_t charged_bytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

struct HostMemory {
  int64_t in_use = 0;       // charged bytes of living tensors, plus what HostCharge adds
  int64_t peak = 0;         // the highest in_use since the last reset_host_peak()
  int64_t kept = 0;         // bytes of freed tensors that are kept for reuse
  int64_t limit = 0;        // bytes; 0: no limit
  int64_t allocations = 0;  // number of allocations so far
};
HostMemory host_memory();
void reset_host_peak();

// From now on an allocation that would bring in_use above `bytes` throws c10::OutOfMemoryError and changes
// nothing. 0: no limit. Memory that is already in use stays in use.
void set_host_limit(int64_t bytes);

// The numbers of the last failed allocation, on any thread; -1: not known.
struct HostShortage {
  int64_t asked = -1, free = -1, allocated = -1;  // bytes
};
HostShortage last_host_shortage();

// While it lives, counts memory that tensors use but that was not allocated here (a mapped file) as in use.
class HostCharge {
 public:
  explicit HostCharge(int64_t bytes);  // throws c10::OutOfMemoryError if the limit does not allow it
  ~HostCharge();
  HostCharge(const HostCharge&) = delete;
  HostCharge& operator=(const HostCharge&) = delete;

 private:
  int64_t bytes_;
};

// For tests: the n-th allocation from now (1: the next) fails as if memory had run out, and with `then` also
// the `then`-th after that. 0: none fails.
void fail_host_allocation(int64_t n, int64_t then = 0);

}  // namespace trainer
