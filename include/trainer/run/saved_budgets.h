// What recovery from a lack of memory has learned, as a run's position keeps it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <c10/core/Device.h>

#include "trainer/config/config.h"
#include "trainer/training/recovery.h"

namespace trainer {

// The budgets, and under which sizes and limits they were learned. generation: of Predictor, nullptr: none.
std::map<std::string, int64_t> budgets_to_keep(const Config& config, c10::Device device,
                                               const BatchBudgets& budgets, const BatchBudget* generation);

// Puts them back where sizes and limits are the same; otherwise they say nothing, and false is returned.
bool put_back_budgets(const std::map<std::string, int64_t>& kept, const Config& config, c10::Device device,
                      BatchBudgets& budgets, BatchBudget* generation);

}  // namespace trainer
