// A hook around each block of a pass. It serves callers that keep the weights of only a few blocks in memory
// at a time.
#pragma once

#include <functional>
#include <memory>

#include "trainer/weights/module.h"

#include "weights/block_store.h"

namespace trainer {

// Every architecture derives from this as well as from Model.
struct BlockHook {
  // Called with each block before it runs, also when it runs again in backward; may be empty. For what it
  // returns see EnterBlock.
  std::function<std::shared_ptr<void>(const Module& block, BlockPass pass)> around_block;

  // Called when this rank has run all blocks of its share of a work that all ranks do, also when it failed;
  // may be empty. It returns when the others have, too: until then they may need weights of this rank.
  std::function<void()> after_share;

  std::shared_ptr<void> enter(const Module& block, BlockPass pass = BlockPass::forward) const {
    return around_block ? around_block(block, pass) : nullptr;
  }
  // The hook of one block. It and the block must outlive the result.
  EnterBlock entering(const Module& block) const {
    return [this, &block](BlockPass pass) { return enter(block, pass); };
  }
};

}  // namespace trainer
