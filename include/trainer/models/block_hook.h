// How a forward pass tells of its blocks, for one that has the weights of a single block in memory at a time.
#pragma once

#include <functional>

#include "trainer/nn/module.h"

namespace trainer {

// What every architecture is besides a Model.
struct BlockHook {
  // Called with each block before it runs; may be empty.
  std::function<void(const Module& block)> before_block;

  void enter(const Module& block) const {
    if (before_block) before_block(block);
  }
};

}  // namespace trainer
