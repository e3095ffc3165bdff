#include "weights/block_weights.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/release_pages.h"
#include "memory/memory_phase.h"
#include "memory/offload.h"
#include "weights/block_buffer.h"
#include "weights/copy_of_weight.h"

namespace trainer {
namespace {

// On the CPU, frozen weights may lie in the model's own file, in memory that LibTorch cannot resize.
bool lies_in_model_file(const at::Tensor& tensor) {
  return !is_offloaded(tensor) && tensor.has_storage() && !tensor.storage().resizable();
}

std::byte* memory_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

void read_ahead(const Weight& weight) {
  for (const at::Tensor& tensor : weight.tensors()) {
    if (lies_in_model_file(tensor)) {
      expect_pages(memory_of(tensor), static_cast<int64_t>(tensor.nbytes()));
    } else {
      fetch_offloaded(tensor);
    }
  }
}

void release(const Weight& weight) {
  for (const at::Tensor& tensor : weight.tensors()) {
    if (lies_in_model_file(tensor)) {
      release_pages(memory_of(tensor), static_cast<int64_t>(tensor.nbytes()));
    } else {
      release_offloaded(tensor);
    }
  }
}

}  // namespace

std::vector<Parameter*> large_weights(Module& block) {
  std::vector<Parameter*> out;
  block.for_each_parameter([&](const std::string&, Parameter& parameter) {
    if (parameter.large) out.push_back(&parameter);
  });
  return out;
}

// Leaves the block when it is destroyed.
class BlockWeights::Stay {
 public:
  Stay(BlockWeights& weights, size_t block, BlockPass pass) : weights_(weights), block_(block), pass_(pass) {}
  ~Stay() { weights_.leave(block_, pass_); }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

 private:
  BlockWeights& weights_;
  size_t block_;
  BlockPass pass_;
};

BlockWeights::BlockWeights(const std::vector<Module*>& blocks, std::shared_ptr<CopyStream> stream)
    : stream_(std::move(stream)) {
  int64_t largest = 0;
  for (Module* module : blocks) {
    Block& block = blocks_.emplace_back(Block{module, {}});
    for (const Parameter* parameter : large_weights(*module)) {
      if (!parameter->value.offloaded()) continue;  // an adapter saves the whole module
      block.weights.push_back(parameter->value);
      block.bytes += bytes_in_buffer(parameter->value);
    }
    largest = std::max(largest, block.bytes);
  }
  const InPhase phase(MemoryPhase::weights);
  for (Buffer& buffer : buffers_) {
    buffer.holds = kNone;
    if (stream_->copies()) buffer.bytes = at::empty({largest}, stream_->options(at::kByte));
  }
}

BlockWeights::~BlockWeights() { forget(); }

// The device may still be writing the weights, and the host will read them, too (checkpoints).
void BlockWeights::forget() {
  CopyStream::host_waits_for(stream_->mark_work());
  for (Buffer& buffer : buffers_) {
    CopyStream::host_waits_for(std::exchange(buffer.arrived, nullptr));
    buffer.holds = kNone;
  }
}

size_t BlockWeights::index_of(const Module& block) const {
  const auto found = std::ranges::find(blocks_, &block, &Block::module);
  TORCH_CHECK(found != blocks_.end(), "not a block of this model: ", block.name());
  return static_cast<size_t>(found - blocks_.begin());
}

// Begins to copy the block to the buffer that the running block does not need.
BlockWeights::Buffer& BlockWeights::fill(size_t index) {
  Buffer& buffer = buffers_[buffers_[0].holds == running_ && running_ != kNone ? 1 : 0];
  CopyStream::host_waits_for(std::exchange(buffer.arrived, nullptr));  // abandoned
  buffer.holds = index;
  count_moved(blocks_[index].bytes);
  int64_t offset = 0;
  stream_->after(std::exchange(buffer.free, nullptr), [&] {
    for (const Weight& weight : blocks_[index].weights) {
      for (const at::Tensor& tensor : weight.tensors())
        place_in_buffer(buffer.bytes, tensor, offset).copy_(tensor.detach(), /*non_blocking=*/true);
    }
  });
  buffer.arrived = stream_->mark_copies();
  return buffer;
}

// The block will be entered next.
void BlockWeights::expect(size_t index) {
  if (stream_->copies()) {
    if (std::ranges::find(buffers_, index, &Buffer::holds) == buffers_.end()) fill(index);
    return;
  }
  for (const Weight& weight : blocks_[index].weights) read_ahead(weight);
}

std::shared_ptr<void> BlockWeights::enter(const Module& module, BlockPass pass) {
  const size_t index = index_of(module);
  if (stream_->copies()) {
    lay_out(index, pass);
  } else {
    count_moved(blocks_[index].bytes);  // from a disk, if the system had no room to keep them in memory
  }
  const size_t next = pass == BlockPass::forward ? index + 1 : index - 1;  // before the first one: kNone
  auto stay = std::make_shared<Stay>(*this, index, pass);
  if (next < blocks_.size()) expect(next);
  return stay;
}

// Makes the block's copies, as soon as they have arrived, its weights.
void BlockWeights::lay_out(size_t index, BlockPass pass) {
  TORCH_CHECK(pass == BlockPass::backward || !at::GradMode::is_enabled(),
              "a block whose weights are offloaded must be recomputed in backward");
  const auto holds = std::ranges::find(buffers_, index, &Buffer::holds);
  Buffer& buffer = holds != buffers_.end() ? *holds : fill(index);
  running_ = index;
  stream_->work_waits_for(std::exchange(buffer.arrived, nullptr));
  int64_t offset = 0;
  for (const Weight& weight : blocks_[index].weights) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : weight.tensors())
      copies.push_back(place_in_buffer(buffer.bytes, tensor, offset));
    if (weight.requires_grad() && pass == BlockPass::backward) copies[0] = copy_of_weight(weight, copies[0]);
    weight.offloaded()->copy = std::make_shared<Weight>(weight.kept_in(copies));
  }
}

void BlockWeights::leave(size_t index, BlockPass pass) {
  for (const Weight& weight : blocks_[index].weights) {
    if (stream_->copies()) {
      weight.offloaded()->copy.reset();
    } else {
      release(weight);
    }
  }
  if (!stream_->copies()) return;
  running_ = kNone;
  const auto holds = std::ranges::find(buffers_, index, &Buffer::holds);
  if (holds != buffers_.end()) holds->free = stream_->mark_work();
  if (pass == BlockPass::backward) stream_->next_turn();  // of gradients on their way
}

}  // namespace trainer
