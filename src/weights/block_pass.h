// What happens around a block while it runs.
#pragma once

#include <functional>
#include <memory>

namespace trainer {

enum class BlockPass {
  forward,
  backward,  // it runs again, and then its gradients are computed
};

// Called before a block runs. The result lives until the block has run, in backward until its gradients are
// computed.
using EnterBlock = std::function<std::shared_ptr<void>(BlockPass pass)>;

}  // namespace trainer
