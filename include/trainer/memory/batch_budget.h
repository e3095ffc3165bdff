// How much smaller than configured the batches have become because the device ran out of memory. Two numbers,
// to be saved with a run.
#pragma once

#include <cstdint>

namespace trainer {

struct BatchBudget {
  int64_t halvings = 0;  // how often the configured size has been halved
  int64_t clean = 0;     // calls since the last change that did not run out of memory

  void shrink() {
    halvings++;
    clean = 0;
  }
  // Call after work that did not run out of memory; after `grow_after` such calls in a row the next size is
  // larger (0: never).
  void succeeded(int64_t grow_after) {
    if (halvings == 0 || grow_after == 0 || ++clean < grow_after) return;
    halvings--;
    clean = 0;
  }
};

}  // namespace trainer
