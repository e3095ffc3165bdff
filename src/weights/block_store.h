// The large weights of blocks that are not on the device: they are in the host's memory (memory.offload) or
// sharded over the ranks (parallel.shard: all, as FSDP does). While a block runs, its weights are resident.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/weights/module.h"

#include "memory/copy_stream.h"

namespace trainer {

class Ranks;
class TensorExchange;

// Returns the parameters of a block that may be offloaded or sharded: the matrices of its linear layers. All
// else in a block is small, or used by other blocks (T5's position bias).
std::vector<Parameter*> large_weights(Module& block);

// Returns the rank that has each of the weights that are sharded: large_weights() of the blocks, whole
// tensors, so that the ranks have about as many elements of each block and of all. It depends on shapes only.
std::map<const Parameter*, int64_t> shard_weights(const std::vector<Module*>& blocks, int64_t ranks);

// Returns the bytes that a weight's tensors take in a buffer.
int64_t bytes_in_buffer(const Weight& weight);

// A source of blocks' weights. Blocks are numbered in the order in which they run.
class BlockSource {
 public:
  // Work that writes tensors to a buffer; each part may be empty.
  struct Arrival {
    StreamMark copied;                  // the device can wait for this
    std::shared_future<void> received;  // the host must wait for this; get() throws LostRank
  };

  virtual ~BlockSource() = default;
  // Returns the weights of the block that are not on the device. They are offloaded (Weight::offloaded()).
  virtual const std::vector<Weight>& weights(size_t block) const = 0;
  // Returns whether they are copied to buffers of the device. Otherwise they are used where they lie.
  virtual bool copies() const = 0;
  // Begins to write the tensors of weights(block), in their order, to `places`, when the device has reached
  // `free`.
  virtual Arrival fetch(size_t block, std::vector<at::Tensor> places, StreamMark free) = 0;
  // Without copies: the block begins to run; it will run next.
  virtual void enter(size_t /*block*/) {}
  virtual void expect(size_t /*block*/) {}
  // The block has run.
  virtual void leave(size_t /*block*/, BlockPass /*pass*/) {}
  // This rank has run all of its blocks: gives others what they fetch until all have. Throws LostRank.
  virtual void serve_until_all_end() {}
};

// Returns the weights of these blocks that are offloaded (memory/offload.h). On a GPU they are copied to it;
// on the CPU they are used where they lie, the next block's are read ahead, and those of a block that has run
// leave memory.
std::unique_ptr<BlockSource> offloaded_blocks(const std::vector<Module*>& blocks,
                                              std::shared_ptr<CopyStream> stream);

// Returns the weights of these blocks that other ranks have, as shard_weights() says; they are marked so
// (Weight::set_of_other_rank). Lets each rank know what is not in the tensors. All ranks must call it.
// `ranks` and `exchange` must outlive the result.
std::unique_ptr<BlockSource> sharded_blocks(const std::vector<Module*>& blocks, const Ranks& ranks,
                                            const TensorExchange& exchange, at::Device device);

// Two buffers of the size of the largest block take turns: one holds the running block, and the next one
// arrives in the other. What is on the device already is used where it lies.
//
// With gradients, a block must be recomputed, because its copies are gone after its forward pass.
class BlockStore {
 public:
  // `blocks` in the order in which they run; `source` was made of the same. Allocates the buffers.
  BlockStore(const std::vector<Module*>& blocks, std::unique_ptr<BlockSource> source,
             std::shared_ptr<CopyStream> stream);
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  // The block's weights are resident as long as the result lives. In backward, gradients of their copies go
  // to OffloadedWeight::take_gradient. Allocates nothing on the device. Throws LostRank.
  std::shared_ptr<void> enter(const Module& block, BlockPass pass);
  // To be called when weights have changed, on any rank: what the buffers hold is of no use any more.
  void forget();
  void serve_until_all_end() { source_->serve_until_all_end(); }  // see BlockSource

 private:
  struct Block {
    const Module* module;
    int64_t bytes = 0;  // in a buffer
  };
  struct Buffer {
    at::Tensor bytes;
    size_t holds = kNone;  // index of a block
    BlockSource::Arrival arrival;
    StreamMark free;
  };
  class Stay;
  static constexpr size_t kNone = ~size_t{0};

  size_t index_of(const Module& block) const;
  Buffer* holding(size_t index);
  std::vector<at::Tensor> places_in(const Buffer& buffer, size_t index) const;
  Buffer& fill(size_t index);
  void expect(size_t index);
  void make_resident(size_t index, BlockPass pass);
  void leave(size_t index, BlockPass pass);

  std::vector<Block> blocks_;
  std::shared_ptr<CopyStream> stream_;
  std::array<Buffer, 2> buffers_;
  size_t running_ = kNone;
  std::unique_ptr<BlockSource> source_;  // ends what it writes to the buffers before they go
};

}  // namespace trainer
