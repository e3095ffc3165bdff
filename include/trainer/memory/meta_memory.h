// Counts what tensors on `meta` would take: a step that runs on them is a step without memory.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/memory/memory_phase.h"

namespace trainer {

// A tensor's memory came, or went.
struct MetaEvent {
  int64_t block;  // counted from 0 in the order in which they came
  int64_t bytes;  // as the target's allocator charges them; negative: freed
  MemoryPhase phase;
  uint64_t node;  // of the backward pass at work, by its number; 0: none
};

// Records, while it lives, the allocations of tensors on meta on this thread. One at a time.
class MetaRecorder {
 public:
  // `granularity`: the target's allocator hands out multiples of so many bytes.
  explicit MetaRecorder(int64_t granularity);
  ~MetaRecorder();
  MetaRecorder(const MetaRecorder&) = delete;
  MetaRecorder& operator=(const MetaRecorder&) = delete;

  const std::vector<MetaEvent>& events() const { return events_; }

 private:
  friend class MetaAllocator;
  int64_t serial_, granularity_, blocks_ = 0;
  std::vector<MetaEvent> events_;
};

}  // namespace trainer
