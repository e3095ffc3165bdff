#include "trainer/memory/meta_memory.h"

#include <limits>

#include <c10/core/Allocator.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

namespace trainer {
namespace {

thread_local MetaRecorder* recorder = nullptr;
thread_local int64_t recorders = 0;

}  // namespace

// Data is null, the size is in the context. Blocks may outlive the recorder that saw them come.
class MetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::kMeta);
    if (recorder == nullptr || bytes == 0) return {nullptr, device};
    const int64_t unit = recorder->granularity_, size = static_cast<int64_t>(bytes);
    auto* block =
        new Block{recorder->serial_, recorder->blocks_++, (size + unit - 1) / unit * unit, memory_phase()};
    note(*block, block->bytes);
    return {nullptr, block, &MetaAllocator::free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {}

 private:
  struct Block {
    int64_t recorder, number, bytes;
    MemoryPhase phase;
  };
  static void note(const Block& block, int64_t bytes) {
    const bool in_backward = torch::autograd::get_current_graph_task_id() != -1;
    recorder->events_.push_back(
        {block.number, bytes, block.phase, in_backward, bytes > 0 && recorder->between_nodes()});
  }
  static void free_block(void* context) {
    auto* block = static_cast<Block*>(context);
    if (recorder != nullptr && block->recorder == recorder->serial_) note(*block, -block->bytes);
    delete block;
  }
};

// A node runs in one pass; one that starts a pass of its own (a recomputed block) is still the current node
// between that one's nodes. Leaves' nodes have no number, and no pass of their own.
bool MetaRecorder::between_nodes() {
  const int task = torch::autograd::get_current_graph_task_id();
  const auto node = torch::autograd::get_current_node();
  if (task == -1) return false;
  if (node == nullptr) return true;
  const uint64_t number = node->sequence_nr();
  if (number == std::numeric_limits<uint64_t>::max()) return false;
  return task_of_node_.try_emplace(number, task).first->second != task;
}

MetaRecorder::MetaRecorder(int64_t granularity) : serial_(recorders++), granularity_(granularity) {
  static MetaAllocator* allocator = [] {
    auto* made = new MetaAllocator;  // never destroyed: tensors may outlive all else
    c10::SetAllocator(c10::kMeta, made, /*priority=*/255);
    return made;
  }();
  (void)allocator;
  TORCH_CHECK(recorder == nullptr, "one plan at a time on a thread");
  recorder = this;
}

MetaRecorder::~MetaRecorder() { recorder = nullptr; }

}  // namespace trainer
