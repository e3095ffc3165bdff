// Detects memory that grows during a run. It warns once, with the growth per step.
#pragma once

#include "trainer/formats/run_position.h"
#include "trainer/memory/summary.h"

#include "memory/growth.h"
#include "run/output_directory.h"

namespace trainer {

class MemoryWatch {
 public:
  // To be called after each step. Logs a warning and writes a row of kind memory_growth.
  void add(const RunPosition& position, const MemorySummary& memory, OutputDirectory& output);

 private:
  void tell(const RunPosition& position, const char* what, const Growth& growth, int64_t limit,
            OutputDirectory& output);

  // A step leaves as many tensors as it found, except for small ones.
  GrowthWatch tensors_{/*noise=*/200'000};
  // Everything else in the process. The caches of libraries fill up for a while.
  GrowthWatch process_{/*noise=*/16'000'000, /*skip=*/200};
};

}  // namespace trainer
