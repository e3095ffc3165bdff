#include "weights/divided_blocks.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "memory/memory_phase.h"
#include "parallel/rank_shares.h"
#include "weights/block_buffer.h"
#include "weights/block_weights.h"
#include "weights/copy_of_weight.h"

namespace trainer {

std::map<const Parameter*, int64_t> divide_weights(const std::vector<Module*>& blocks, int64_t ranks) {
  std::map<const Parameter*, int64_t> owners;
  std::vector<int64_t> loads(static_cast<size_t>(ranks), 0);
  for (Module* block : blocks) {
    const std::vector<Parameter*> weights = large_weights(*block);
    std::vector<int64_t> elements;
    for (const Parameter* weight : weights) elements.push_back(weight->numel());
    const std::vector<int64_t> divided = divide_among(ranks, elements, loads);
    for (size_t i = 0; i < weights.size(); i++) {
      owners[weights[i]] = divided[i];
      loads[static_cast<size_t>(divided[i])] += elements[i];
    }
  }
  return owners;
}

// Leaves the block when it is destroyed.
class DividedBlocks::Visit {
 public:
  Visit(DividedBlocks& blocks, size_t block) : blocks_(blocks), block_(block) {}
  ~Visit() { blocks_.leave(block_); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  DividedBlocks& blocks_;
  size_t block_;
};

DividedBlocks::DividedBlocks(const std::vector<Module*>& blocks, const Ranks& ranks,
                             const TensorExchange& exchange, std::shared_ptr<CopyStream> stream)
    : stream_(std::move(stream)) {
  const std::map<const Parameter*, int64_t> owners = divide_weights(blocks, ranks.count());
  for (Module* module : blocks) blocks_.push_back({module, large_weights(*module), {}});
  learn_facts(ranks, owners);
  std::vector<std::vector<LentTensor>> groups;
  int64_t largest = 0;
  for (Block& block : blocks_) {
    std::vector<LentTensor>& group = groups.emplace_back();
    for (const Parameter* parameter : block.weights) {
      const Weight& weight = parameter->value;
      const int64_t owner = owners.at(parameter);
      const bool is_own = owner == ranks.rank();
      for (const at::Tensor& tensor : weight.tensors())
        group.push_back({is_own ? tensor.detach() : at::Tensor(), owner});
      if (is_own) continue;
      TORCH_CHECK(weight.is_of_other_rank(), block.module->name(), ": a weight of rank ", owner, " is here");
      block.fetched.push_back(weight);
      block.bytes += bytes_in_buffer(weight);
    }
    largest = std::max(largest, block.bytes);
  }
  const InPhase phase(MemoryPhase::weights);
  for (Buffer& buffer : buffers_) {
    buffer.holds = kNone;
    buffer.bytes = at::empty({largest}, stream_->options(at::kByte));
  }
  if (!stream_->device().is_meta())
    lent_ = std::make_unique<LentTensors>(ranks, exchange, stream_->device(), std::move(groups));
}

DividedBlocks::~DividedBlocks() = default;

// Each rank tells what it knows of its weights, in the order of the blocks: length and bytes.
void DividedBlocks::learn_facts(const Ranks& ranks, const std::map<const Parameter*, int64_t>& owners) {
  const auto for_each = [&](const auto& visit) {
    for (Block& block : blocks_) {
      for (Parameter* parameter : block.weights) visit(*parameter, static_cast<size_t>(owners.at(parameter)));
    }
  };
  std::string own;
  for_each([&](const Parameter& parameter, size_t owner) {
    if (owner != static_cast<size_t>(ranks.rank())) return;
    const std::string facts = parameter.value.facts();
    own.push_back(static_cast<char>(facts.size()));
    own += facts;
  });
  if (stream_->device().is_meta()) return;
  const std::vector<std::string> notes = ranks.exchange(own, Channel::phases);
  std::vector<size_t> read(notes.size(), 0);
  for_each([&](Parameter& parameter, size_t owner) {
    const auto size = static_cast<size_t>(notes[owner].at(read[owner]));
    const std::string facts = notes[owner].substr(read[owner] + 1, size);
    read[owner] += 1 + size;
    if (parameter.value.is_of_other_rank()) parameter.value.take_facts(facts);
  });
}

// What buffers are still expecting arrives first, because it is written to them.
void DividedBlocks::forget() {
  CopyStream::host_waits_for(stream_->mark_work());
  for (Buffer& buffer : buffers_) {
    if (buffer.arrived.valid()) std::exchange(buffer.arrived, {}).get();
    buffer.holds = kNone;
  }
}

void DividedBlocks::serve() {
  if (lent_) lent_->serve();
}

size_t DividedBlocks::index_of(const Module& block) const {
  const auto found = std::ranges::find(blocks_, &block, &Block::module);
  TORCH_CHECK(found != blocks_.end(), "not a block of this model: ", block.name());
  return static_cast<size_t>(found - blocks_.begin());
}

DividedBlocks::Buffer* DividedBlocks::holding(size_t index) {
  const auto found = std::ranges::find(buffers_, index, &Buffer::holds);
  return found != buffers_.end() ? &*found : nullptr;
}

// Begins to fetch the block to the buffer that the running block does not need.
DividedBlocks::Buffer& DividedBlocks::fill(size_t index) {
  Buffer& buffer = buffers_[buffers_[0].holds == running_ && running_ != kNone ? 1 : 0];
  buffer.holds = kNone;
  if (buffer.arrived.valid()) std::exchange(buffer.arrived, {}).get();  // abandoned
  std::vector<at::Tensor> places;
  int64_t offset = 0;
  for (const Parameter* parameter : blocks_[index].weights) {
    const Weight& weight = parameter->value;
    for (const at::Tensor& tensor : weight.tensors())
      places.push_back(weight.is_of_other_rank() ? place_in_buffer(buffer.bytes, tensor, offset)
                                                 : at::Tensor());
  }
  StreamMark free = std::exchange(buffer.free, nullptr);
  if (lent_) buffer.arrived = lent_->fetch(index, std::move(places), std::move(free));
  buffer.holds = index;
  return buffer;
}

std::shared_ptr<void> DividedBlocks::enter(const Module& module, BlockPass pass) {
  TORCH_CHECK(pass == BlockPass::backward || !at::GradMode::is_enabled(),
              "a block whose weights are divided among ranks must be recomputed in backward");
  const size_t index = index_of(module);
  if (!blocks_[index].fetched.empty()) lay_out(index, pass);
  auto visit = std::make_shared<Visit>(*this, index);
  const size_t next = pass == BlockPass::forward ? index + 1 : index - 1;  // before the first one: kNone
  if (next < blocks_.size() && !blocks_[next].fetched.empty() && holding(next) == nullptr) fill(next);
  return visit;
}

// Makes the block's copies, as soon as they have arrived, its weights.
void DividedBlocks::lay_out(size_t index, BlockPass pass) {
  Buffer* holds = holding(index);
  Buffer& buffer = holds != nullptr ? *holds : fill(index);
  running_ = index;
  if (buffer.arrived.valid()) std::exchange(buffer.arrived, {}).get();
  int64_t offset = 0;
  for (const Weight& weight : blocks_[index].fetched) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : weight.tensors())
      copies.push_back(place_in_buffer(buffer.bytes, tensor, offset));
    if (weight.requires_grad() && pass == BlockPass::backward) copies[0] = copy_of_weight(weight, copies[0]);
    weight.offloaded()->copy = std::make_shared<Weight>(weight.kept_in(copies));
  }
}

void DividedBlocks::leave(size_t index) {
  for (const Weight& weight : blocks_[index].fetched) weight.offloaded()->copy.reset();
  running_ = kNone;
  if (Buffer* buffer = holding(index)) buffer->free = stream_->mark_work();
}

}  // namespace trainer
