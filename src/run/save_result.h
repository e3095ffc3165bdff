// The end of a run: saves the result at the root of the output directory.
#pragma once

#include <string>

#include "trainer/config/config.h"
#include "trainer/run/artefacts.h"

#include "run/checkpoints.h"
#include "run/run_parts.h"
#include "run/run_progress.h"

namespace trainer {

// Saves the weights of the last step (with training.load_best_model_at_end, those of the best evaluation) and
// marks the run as complete. Throws FormatError when they cannot be saved.
void save_result(RunParts& parts, RunProgress& progress, Checkpoints& checkpoints);

// Fills in the types of the tensors in the files, and what config.json says. If fp16 cannot hold a value, the
// tensors that were to be fp16 keep the type of the training, and a warning names the tensor.
void choose_result_types(SavedWeights& weights, const Artefacts& artefacts, SaveDtype asked);

// Returns what a user must know of the types before the run: that they differ from those that came in, or
// that converting loses something. "" if neither is so.
std::string result_types_text(const SavedWeights& weights, const Artefacts& artefacts, const Config& config);

}  // namespace trainer
