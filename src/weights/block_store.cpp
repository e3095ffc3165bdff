#include "weights/block_store.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "memory/memory_phase.h"

namespace trainer {
namespace {

// LibTorch's GPU allocator aligns tensors so.
int64_t aligned_in_buffer(int64_t bytes) {
  constexpr int64_t alignment = 512;
  return (bytes + alignment - 1) / alignment * alignment;
}

struct OriginOfCopy : torch::CustomClassHolder {
  explicit OriginOfCopy(std::shared_ptr<OffloadedWeight> of) : weight(std::move(of)) {}
  std::shared_ptr<OffloadedWeight> weight;
};

// Returns `copy` as a differentiable tensor. Its gradient goes to OffloadedWeight::take_gradient, and not to
// the leaf, which is on another device.
struct DifferentiableCopy : torch::autograd::Function<DifferentiableCopy> {
  using Context = torch::autograd::AutogradContext;
  static at::Tensor forward(Context* ctx, const at::Tensor& /*leaf*/, const at::Tensor& copy,
                            const c10::intrusive_ptr<OriginOfCopy>& origin) {
    ctx->set_materialize_grads(false);
    ctx->saved_data["origin"] = c10::IValue::make_capsule(origin);
    const at::AutoDispatchBelowADInplaceOrView plain;  // the result is no view to autograd
    return copy.alias();
  }
  static torch::autograd::variable_list backward(Context* ctx, const torch::autograd::variable_list& grads) {
    const auto origin =
        c10::static_intrusive_pointer_cast<OriginOfCopy>(ctx->saved_data["origin"].toCapsule());
    if (grads[0].defined()) origin->weight->take_gradient(grads[0]);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor differentiable_copy(const Weight& weight, const at::Tensor& copy) {
  return DifferentiableCopy::apply(weight.tensor(), copy,
                                   c10::make_intrusive<OriginOfCopy>(weight.offloaded()));
}

void host_waits_for(BlockSource::Arrival& arrival) {
  if (arrival.received.valid()) std::exchange(arrival.received, {}).get();
  CopyStream::host_waits_for(std::exchange(arrival.copied, nullptr));
}

}  // namespace

int64_t bytes_in_buffer(const Weight& weight) {
  int64_t sum = 0;
  for (const at::Tensor& tensor : weight.tensors())
    sum += aligned_in_buffer(static_cast<int64_t>(tensor.nbytes()));
  return sum;
}

// Leaves the block when it is destroyed.
class BlockStore::Stay {
 public:
  Stay(BlockStore& store, size_t block, BlockPass pass) : store_(store), block_(block), pass_(pass) {}
  ~Stay() { store_.leave(block_, pass_); }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

 private:
  BlockStore& store_;
  size_t block_;
  BlockPass pass_;
};

BlockStore::BlockStore(const std::vector<Module*>& blocks, std::unique_ptr<BlockSource> source,
                       std::shared_ptr<CopyStream> stream)
    : stream_(std::move(stream)), source_(std::move(source)) {
  int64_t largest = 0;
  for (const Module* module : blocks) {
    int64_t bytes = 0;
    for (const Weight& weight : source_->weights(blocks_.size())) bytes += bytes_in_buffer(weight);
    blocks_.push_back({module, bytes});
    largest = std::max(largest, bytes);
  }
  if (!source_->copies()) return;
  const InPhase phase(MemoryPhase::weights);
  for (Buffer& buffer : buffers_) buffer.bytes = at::empty({largest}, stream_->options(at::kByte));
}

BlockStore::~BlockStore() {
  for (const Buffer& buffer : buffers_) CopyStream::host_waits_for(buffer.arrival.copied);
}

// Waits for copies that are still on their way to the buffers.
void BlockStore::forget() {
  CopyStream::host_waits_for(stream_->mark_work());
  for (Buffer& buffer : buffers_) {
    host_waits_for(buffer.arrival);
    buffer.holds = kNone;
  }
}

size_t BlockStore::index_of(const Module& block) const {
  const auto found = std::ranges::find(blocks_, &block, &Block::module);
  TORCH_CHECK(found != blocks_.end(), "not a block of this model: ", block.name());
  return static_cast<size_t>(found - blocks_.begin());
}

BlockStore::Buffer* BlockStore::holding(size_t index) {
  const auto found = std::ranges::find(buffers_, index, &Buffer::holds);
  return found != buffers_.end() ? &*found : nullptr;
}

// The parts of the buffer for the block's tensors, of their shapes and types.
std::vector<at::Tensor> BlockStore::places_in(const Buffer& buffer, size_t index) const {
  const at::AutoDispatchBelowADInplaceOrView plain;
  std::vector<at::Tensor> places;
  int64_t offset = 0;
  for (const Weight& weight : source_->weights(index)) {
    for (const at::Tensor& tensor : weight.tensors()) {
      const auto bytes = static_cast<int64_t>(tensor.nbytes());
      places.push_back(buffer.bytes.narrow(0, offset, bytes).view(tensor.scalar_type()).view(tensor.sizes()));
      offset += aligned_in_buffer(bytes);
    }
  }
  return places;
}

// Begins to bring the block to the buffer that the running block does not need.
BlockStore::Buffer& BlockStore::fill(size_t index) {
  Buffer& buffer = buffers_[buffers_[0].holds == running_ && running_ != kNone ? 1 : 0];
  buffer.holds = kNone;
  host_waits_for(buffer.arrival);  // abandoned
  buffer.arrival = source_->fetch(index, places_in(buffer, index), std::exchange(buffer.free, nullptr));
  buffer.holds = index;
  return buffer;
}

// The block will be entered next.
void BlockStore::expect(size_t index) {
  if (!source_->copies()) return source_->expect(index);
  if (blocks_[index].bytes > 0 && holding(index) == nullptr) fill(index);
}

std::shared_ptr<void> BlockStore::enter(const Module& module, BlockPass pass) {
  const size_t index = index_of(module);
  if (source_->copies()) {
    TORCH_CHECK(pass == BlockPass::backward || !at::GradMode::is_enabled(),
                "a block whose weights are offloaded or sharded must be recomputed in backward");
    if (blocks_[index].bytes > 0) make_resident(index, pass);
  } else {
    source_->enter(index);
  }
  auto stay = std::make_shared<Stay>(*this, index, pass);
  const size_t next = pass == BlockPass::forward ? index + 1 : index - 1;  // before the first one: kNone
  if (next < blocks_.size()) expect(next);
  return stay;
}

// Makes the block's copies, as soon as they have arrived, its weights.
void BlockStore::make_resident(size_t index, BlockPass pass) {
  Buffer* holds = holding(index);
  Buffer& buffer = holds != nullptr ? *holds : fill(index);
  running_ = index;
  if (buffer.arrival.received.valid()) std::exchange(buffer.arrival.received, {}).get();
  stream_->work_waits_for(std::exchange(buffer.arrival.copied, nullptr));
  const std::vector<at::Tensor> places = places_in(buffer, index);
  auto next = places.begin();
  for (const Weight& weight : source_->weights(index)) {
    const auto first = next;
    next += static_cast<std::ptrdiff_t>(weight.tensors().size());
    std::vector<at::Tensor> copies(first, next);
    if (weight.requires_grad() && pass == BlockPass::backward)
      copies[0] = differentiable_copy(weight, copies[0]);
    weight.offloaded()->copy = std::make_shared<Weight>(weight.with_storage(copies));
  }
}

void BlockStore::leave(size_t index, BlockPass pass) {
  if (source_->copies()) {
    for (const Weight& weight : source_->weights(index)) weight.offloaded()->copy.reset();
    running_ = kNone;
    if (Buffer* buffer = holding(index)) buffer->free = stream_->mark_work();
  }
  source_->leave(index, pass);
}

}  // namespace trainer
