// The memory of out-of-memory recovery: how much smaller than configured the micro-batches are now. A few
// numbers, to be saved with a run.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainer {

struct BatchBudget {
  int64_t halvings = 0;  // times that the configured size has been halved
  int64_t clean = 0;     // calls since the last change that did not run out of memory
  // Tokens of the shortest sample that did not fit without recompute, alone or with as few others as allowed;
  // 0: none is known.
  int64_t recompute_from = 0;
  int64_t recompute_clean = 0;  // calls since then that did not run out of memory
  bool widen_again = false;  // widened weights no longer fit together (MemoryConfig::widen_once); not saved

  void shrink() {
    halvings++;
    clean = recompute_clean = 0;
  }
  void recompute(int64_t tokens) {
    recompute_from = recompute_from == 0 ? tokens : std::min(recompute_from, tokens);
    clean = recompute_clean = 0;
  }
  // Call after work that did not run out of memory. After `grow_after` such calls in a row the next size is
  // larger, and after four times as many nothing is recomputed for want of memory (0: never): by then the
  // largest size that fits with recompute has been found.
  void succeeded(int64_t grow_after) {
    if (grow_after == 0) return;
    if (halvings > 0 && ++clean >= grow_after) {
      halvings--;
      clean = 0;
    }
    if (recompute_from > 0 && ++recompute_clean >= 4 * grow_after) recompute_from = recompute_clean = 0;
  }
};

}  // namespace trainer
