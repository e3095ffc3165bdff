// The weights of blocks, divided among the ranks (parallel.shard: all). While a block runs, those of other
// ranks are at hand.
#pragma once

#include <array>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/weights/module.h"

#include "memory/copy_stream.h"
#include "parallel/lent_tensors.h"
#include "weights/block_pass.h"

namespace trainer {

// Returns the rank that has each of the weights that are divided: large_weights() of the blocks, whole
// tensors, so that the ranks have about as many elements of each block and of all. It depends on shapes only.
std::map<const Parameter*, int64_t> divide_weights(const std::vector<Module*>& blocks, int64_t ranks);

// Two buffers take turns: one holds what the running block has of other ranks, and the next block's arrives
// in the other one. The own weights are used where they lie.
//
// With gradients, a block must be recomputed, because the weights of others are gone after its forward pass.
class DividedBlocks {
 public:
  // `blocks` in the order in which they run; their weights are divided as divide_weights() says, and those of
  // other ranks are marked so (Weight::set_of_other_rank). Allocates the buffers, and lets each rank know
  // what is not in the tensors. All ranks must call it. `ranks` and `exchange` must outlive it.
  DividedBlocks(const std::vector<Module*>& blocks, const Ranks& ranks, const TensorExchange& exchange,
                std::shared_ptr<CopyStream> stream);
  ~DividedBlocks();
  DividedBlocks(const DividedBlocks&) = delete;
  DividedBlocks& operator=(const DividedBlocks&) = delete;

  // The block's weights are at hand as long as the result lives. In backward, gradients of the weights of
  // others go to OffloadedWeight::take_gradient. Allocates nothing on the device. Throws LostRank.
  std::shared_ptr<void> enter(const Module& block, BlockPass pass);
  // To be called when weights have changed, on any rank.
  void forget();
  // See LentTensors::serve().
  void serve();

 private:
  struct Block {
    const Module* module;
    std::vector<Parameter*> weights;
    std::vector<Weight> fetched;  // those of other ranks
    int64_t bytes = 0;            // in a buffer
  };
  struct Buffer {
    at::Tensor bytes;
    size_t holds;  // index of a block; kNone
    std::shared_future<void> arrived;
    StreamMark free;
  };
  class Visit;
  static constexpr size_t kNone = ~size_t{0};

  void learn_facts(const Ranks& ranks, const std::map<const Parameter*, int64_t>& owners);
  size_t index_of(const Module& block) const;
  Buffer* holding(size_t index);
  Buffer& fill(size_t index);
  void lay_out(size_t index, BlockPass pass);
  void leave(size_t index);

  std::vector<Block> blocks_;
  std::shared_ptr<CopyStream> stream_;
  std::array<Buffer, 2> buffers_;
  size_t running_ = kNone;
  std::unique_ptr<LentTensors> lent_;  // null on meta, where nothing travels
};

}  // namespace trainer
