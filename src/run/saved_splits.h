// The micro-batch splits of earlier starts: budgets that recovery has learned, and recorded micro-batches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <c10/core/Device.h>

#include "trainer/config/config.h"
#include "trainer/training/recovery.h"

namespace trainer {

// Returns the budgets, with the sizes and limits under which they were learned. `generation`: the Predictor's
// budget, or nullptr.
std::map<std::string, int64_t> budgets_to_keep(const Config& config, c10::Device device,
                                               const BatchBudgets& budgets, const BatchBudget* generation);

// Restores the budgets. If sizes or limits have changed, they no longer apply: nothing is restored, and false
// is returned.
bool put_back_budgets(const std::map<std::string, int64_t>& kept, const Config& config, c10::Device device,
                      BatchBudgets& budgets, BatchBudget* generation);

// Returns the split of each step in a metrics.jsonl, by step. If a step occurs twice (in a run that was
// resumed), the last one counts. Throws DataError when the file cannot be read or a row is malformed.
std::map<int64_t, StepCuts> read_step_cuts(const std::filesystem::path& metrics);

}  // namespace trainer
