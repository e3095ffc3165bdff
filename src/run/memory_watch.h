// Memory that grows while a run goes on: noticed once, with how much a step.
#pragma once

#include "trainer/formats/run_position.h"
#include "trainer/memory/growth.h"
#include "trainer/memory/summary.h"
#include "trainer/run/output_directory.h"

namespace trainer {

class MemoryWatch {
 public:
  // After each step. A warning, and a row of kind memory_growth.
  void add(const RunPosition& position, const MemorySummary& memory, OutputDirectory& output);

 private:
  void tell(const RunPosition& position, const char* what, const Growth& growth, int64_t limit,
            OutputDirectory& output);

  // Tensors after a step are those before it: exact but for small ones.
  GrowthWatch tensors_{/*noise=*/200'000};
  // Everything else in the process: the libraries' caches fill for a while.
  GrowthWatch process_{/*noise=*/16'000'000, /*skip=*/200};
};

}  // namespace trainer
