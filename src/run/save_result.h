// The end of a run: saves the result at the root of the output directory.
#pragma once

#include "run/checkpoints.h"
#include "run/run_parts.h"
#include "run/run_progress.h"

namespace trainer {

// Saves the weights of the last step (with training.load_best_model_at_end, those of the best evaluation) and
// marks the run as complete. Throws FormatError when they cannot be saved.
void save_result(RunParts& parts, const RunProgress& progress, Checkpoints& checkpoints);

}  // namespace trainer
