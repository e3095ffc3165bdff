// The log-probabilities of the reference, for objectives that compare answers with it.
#pragma once

#include "run/run_parts.h"

namespace trainer {

// With objective.reference: kept (or auto, where that means it), gives the training and evaluation data the
// log-probabilities of their answers under the model as it was loaded: those that are in the cache, or those
// of a pass over the data, which are then kept there. Call before the state of an earlier start is restored.
// The name of the file in the cache follows from all that they depend on: weights, tokenizer, chat template,
// samples.
void keep_references(RunParts& parts);

}  // namespace trainer
