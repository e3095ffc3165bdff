// The micro-batches of another run, to repeat its steps with the same split (training.replay_cuts).
#pragma once

#include <filesystem>
#include <map>

#include "trainer/training/recovery.h"

namespace trainer {

// Returns the split of each step in a metrics.jsonl, by step. If a step occurs twice (in a run that was
// resumed), the last one counts. Throws DataError when the file cannot be read or a row is malformed.
std::map<int64_t, StepCuts> read_step_cuts(const std::filesystem::path& metrics);

}  // namespace trainer
