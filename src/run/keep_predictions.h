// What a run does with the answers of an evaluation.
#pragma once

#include <cstdint>
#include <filesystem>

#include "trainer/training/predictions.h"

namespace trainer {

// Writes them to OUT/predictions/step-STEP.jsonl and logs the first `show` beside their targets. A file that
// cannot be written (disk full) is a warning: the run goes on.
void keep_predictions(const Predictions& predictions, const std::filesystem::path& output_dir, int64_t step,
                      int64_t show);

}  // namespace trainer
