// The offloaded weights of blocks (memory/offload.h). While a block runs, they are at hand.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/weights/module.h"

#include "memory/copy_stream.h"
#include "weights/block_pass.h"

namespace trainer {

// Returns the parameters of a block that may be offloaded, or divided among ranks: the matrices of its linear
// layers. All else in a block is small, or used by other blocks (T5's position bias).
std::vector<Parameter*> large_weights(Module& block);

// On a GPU, two buffers of the size of the largest block take turns: one holds the running block, and the
// next one is copied to the other. On the CPU weights are used where they lie; the next block's are read
// ahead, and those of a block that has run leave memory.
//
// With gradients, a block must be recomputed, because its copies are gone after its forward pass.
class BlockWeights {
 public:
  // `blocks` in the order in which they run. Allocates the buffers.
  BlockWeights(const std::vector<Module*>& blocks, std::shared_ptr<CopyStream> stream);
  ~BlockWeights();
  BlockWeights(const BlockWeights&) = delete;
  BlockWeights& operator=(const BlockWeights&) = delete;

  // The block's weights are at hand as long as the result lives. In backward, gradients of their copies go to
  // OffloadedWeight::take_gradient.
  std::shared_ptr<void> enter(const Module& block, BlockPass pass);
  // To be called when offloaded weights have changed.
  void forget();

 private:
  struct Block {
    const Module* module;
    std::vector<Weight> weights;
    int64_t bytes = 0;  // in a buffer
  };
  struct Buffer {
    at::Tensor bytes;
    size_t holds;  // index of a block; kNone
    StreamMark arrived, free;
  };
  class Stay;
  static constexpr size_t kNone = ~size_t{0};

  size_t index_of(const Module& block) const;
  void expect(size_t index);
  Buffer& fill(size_t index);
  void lay_out(size_t index, BlockPass pass);
  void leave(size_t index, BlockPass pass);

  std::vector<Block> blocks_;
  std::shared_ptr<CopyStream> stream_;
  std::array<Buffer, 2> buffers_;
  size_t running_ = kNone;
};

}  // namespace trainer
