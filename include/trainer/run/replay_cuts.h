// The cuts of another run, to go through its steps as it did.
#pragma once

#include <filesystem>
#include <map>

#include "trainer/training/recovery.h"

namespace trainer {

// Of each step in a metrics.jsonl; of a step that was done twice (a run that was resumed) the last. Throws
// DataError where the file cannot be read or a row is none.
std::map<int64_t, StepCuts> read_step_cuts(const std::filesystem::path& metrics);

}  // namespace trainer
