// Counts the memory that tensors on `meta` would take. A step that runs on them needs no memory itself.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/memory_phase.h"

namespace trainer {

// A tensor's memory was allocated or freed.
struct MetaEvent {
  int64_t block;  // number of the block, from 0, in the order of allocation
  int64_t bytes;  // as the target's allocator counts them; negative: freed
  uint64_t node;  // number of the running node of the backward pass; 0: none
  MemoryPhase phase;
  bool offloaded = false;  // the memory is offloaded (memory/offload.h)
  bool sum = false;        // allocated by autograd for the sum of two gradients of one tensor
};

// While it lives, records the allocations of meta tensors on this thread. Only one at a time.
class MetaRecorder {
 public:
  // `granularity`: the target's allocator hands out multiples of this many bytes.
  explicit MetaRecorder(int64_t granularity);
  ~MetaRecorder();
  MetaRecorder(const MetaRecorder&) = delete;
  MetaRecorder& operator=(const MetaRecorder&) = delete;

  const std::vector<MetaEvent>& events() const { return events_; }

 private:
  friend class MetaAllocator;
  int64_t serial_, granularity_, blocks_ = 0;
  uint64_t nodes_;  // the callback that follows the nodes of the backward pass
  std::vector<MetaEvent> events_;
};

// While it lives, allocations of this thread on meta stand for offloaded memory.
class RecordingOffloaded {
 public:
  RecordingOffloaded();
  ~RecordingOffloaded();
  RecordingOffloaded(const RecordingOffloaded&) = delete;
  RecordingOffloaded& operator=(const RecordingOffloaded&) = delete;

 private:
  bool before_;
};

// While it lives, allocations of this thread on meta stand for nothing: another rank has the memory.
class RecordingNothing {
 public:
  RecordingNothing();
  ~RecordingNothing();
  RecordingNothing(const RecordingNothing&) = delete;
  RecordingNothing& operator=(const RecordingNothing&) = delete;

 private:
  bool before_;
};

}  // namespace trainer
