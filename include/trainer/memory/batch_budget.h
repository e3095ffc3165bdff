// How much smaller than configured the batches have become because the device ran out of memory. A few
// numbers, to be saved with a run.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainer {

struct BatchBudget {
  int64_t halvings = 0;  // how often the configured size has been halved
  int64_t clean = 0;     // calls since the last change that did not run out of memory
  // Tokens of the shortest micro-batch that cannot be split and did not fit without recompute; 0: none yet.
  int64_t recompute_from = 0;

  void shrink() {
    halvings++;
    clean = 0;
  }
  void recompute(int64_t tokens) {
    recompute_from = recompute_from == 0 ? tokens : std::min(recompute_from, tokens);
    clean = 0;
  }
  // Call after work that did not run out of memory; after `grow_after` such calls in a row the next size is
  // larger, or if it is the configured one, nothing is recomputed for want of memory (0: never).
  void succeeded(int64_t grow_after) {
    if ((halvings == 0 && recompute_from == 0) || grow_after == 0 || ++clean < grow_after) return;
    halvings > 0 ? halvings-- : recompute_from = 0;
    clean = 0;
  }
};

}  // namespace trainer
