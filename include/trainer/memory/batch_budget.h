// How much smaller than configured batches have become for lack of memory. Two numbers, to be saved with a
// run.
#pragma once

#include <cstdint>

namespace trainer {

struct BatchBudget {
  int64_t halvings = 0;  // the size is the configured one, halved so often
  int64_t clean = 0;     // calls without a lack of memory since it changed

  void shrink() {
    halvings++;
    clean = 0;
  }
  // After work that did not lack memory; at the `grow_after`-th in a row the next one is larger (0: never).
  void succeeded(int64_t grow_after) {
    if (halvings == 0 || grow_after == 0 || ++clean < grow_after) return;
    halvings--;
    clean = 0;
  }
};

}  // namespace trainer
