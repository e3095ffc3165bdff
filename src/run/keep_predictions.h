// Saves and logs the generated answers of an evaluation.
#pragma once

#include <cstdint>
#include <filesystem>

#include "trainer/training/predictions.h"

namespace trainer {

// Writes them to OUT/predictions/step-STEP.jsonl and logs the first `show` with their targets. If the file
// cannot be written (disk full), a warning is logged and the run continues.
void keep_predictions(const Predictions& predictions, const std::filesystem::path& output_dir, int64_t step,
                      int64_t show);

}  // namespace trainer
