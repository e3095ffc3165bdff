// A hook that a forward pass calls before each block. It serves a caller that keeps the weights of only one
// block in memory at a time.
#pragma once

#include <functional>

#include "trainer/nn/module.h"

namespace trainer {

// Every architecture derives from this as well as from Model.
struct BlockHook {
  // Called with each block before it runs; may be empty.
  std::function<void(const Module& block)> before_block;

  void enter(const Module& block) const {
    if (before_block) before_block(block);
  }
};

}  // namespace trainer
