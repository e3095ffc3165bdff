#include "memory/meta_memory.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/autograd/function.h>

#include "trainer/memory/host_allocator.h"

#include "memory/memory_phase.h"

namespace trainer {
namespace {

thread_local MetaRecorder* recorder = nullptr;
thread_local int64_t recorders = 0;
thread_local bool recording_offloaded = false, recording_nothing = false;

// The nodes of the backward pass whose functions run, the innermost last. Recomputing runs a backward pass in
// a node of another.
thread_local std::vector<const torch::autograd::Node*> running;

// Autograd's engine works for a node, but that node's function does not run: it sums gradients.
bool sums_gradients(const torch::autograd::Node* node) {
  return node != nullptr && (running.empty() || running.back() != node);
}

std::unique_ptr<at::ObserverContext> enter_node(const at::RecordFunction&) {
  running.push_back(torch::autograd::get_current_node().get());
  return nullptr;
}
void leave_node(const at::RecordFunction&, at::ObserverContext*) { running.pop_back(); }

thread_local MemoryPhase current = MemoryPhase::forward;

}  // namespace

// The data pointer is null; the size is in the context. Blocks may outlive the recorder of their allocation.
class MetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::kMeta);
    if (recorder == nullptr || recording_nothing || bytes == 0) return {nullptr, device};
    const int64_t size = static_cast<int64_t>(bytes),
                  unit = recording_offloaded ? charged_bytes(1) : recorder->granularity_;
    auto* block = new Block{recorder->serial_, recorder->blocks_++, (size + unit - 1) / unit * unit,
                            memory_phase(), recording_offloaded};
    note(*block, block->bytes);
    return {nullptr, block, &MetaAllocator::free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {}

 private:
  struct Block {
    int64_t recorder, number, bytes;
    MemoryPhase phase;
    bool offloaded;
  };
  static void note(const Block& block, int64_t bytes) {
    const auto node = torch::autograd::get_current_node();
    // All leaves have the largest number, which becomes 1.
    const uint64_t number = node ? std::max<uint64_t>(node->sequence_nr() + 1, 1) : 0;
    recorder->events_.push_back(
        {block.number, bytes, number, block.phase, block.offloaded, bytes > 0 && sums_gradients(node.get())});
  }
  static void free_block(void* context) {
    auto* block = static_cast<Block*>(context);
    if (recorder != nullptr && block->recorder == recorder->serial_) note(*block, -block->bytes);
    delete block;
  }
};

MetaRecorder::MetaRecorder(int64_t granularity) : serial_(recorders++), granularity_(granularity) {
  static MetaAllocator* allocator = [] {
    auto* made = new MetaAllocator;  // never destroyed: tensors may outlive all else
    c10::SetAllocator(c10::kMeta, made, /*priority=*/255);
    return made;
  }();
  (void)allocator;
  TORCH_CHECK(recorder == nullptr, "one plan at a time on a thread");
  nodes_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(enter_node, leave_node).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  recorder = this;
}

MetaRecorder::~MetaRecorder() {
  recorder = nullptr;
  at::removeCallback(nodes_);
}

RecordingOffloaded::RecordingOffloaded() : before_(std::exchange(recording_offloaded, true)) {}
RecordingOffloaded::~RecordingOffloaded() { recording_offloaded = before_; }

RecordingNothing::RecordingNothing() : before_(std::exchange(recording_nothing, true)) {}
RecordingNothing::~RecordingNothing() { recording_nothing = before_; }

MemoryPhase memory_phase() { return current; }

InPhase::InPhase(MemoryPhase phase) : before_(std::exchange(current, phase)) {}
InPhase::~InPhase() { current = before_; }

}  // namespace trainer
