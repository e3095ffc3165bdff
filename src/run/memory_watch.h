// Memory that grows while a run goes on: noticed once, with how much a step.
#pragma once

#include "trainer/memory/growth.h"
#include "trainer/memory/summary.h"
#include "trainer/run/progress.h"
#include "trainer/run/run.h"

namespace trainer {

class MemoryWatch {
 public:
  // After each step. A warning, and a row of kind memory_growth.
  void add(const Position& position, const MemorySummary& memory, Run& run);

 private:
  void tell(const Position& position, const char* what, const Growth& growth, int64_t limit, Run& run);

  // Tensors after a step are those before it: exact but for small ones.
  GrowthWatch tensors_{/*noise=*/200'000};
  // Everything else in the process: the libraries' caches fill for a while.
  GrowthWatch process_{/*noise=*/16'000'000, /*skip=*/200};
};

}  // namespace trainer
