// The log-probabilities of the reference, for objectives that compare answers with it.
#pragma once

#include "run/run_parts.h"

namespace trainer {

// With objective.reference: kept (or auto, where that means it), gives the training and evaluation data the
// log-probabilities of their answers under the model as it was loaded, and for kto those of the other answers
// that the coming steps compare. Takes what is in the cache; the rest is computed in passes over the data and
// kept there, every few seconds, so that a pass that was interrupted goes on. What is kept says all that it
// depends on (weights, tokenizer, chat template, rows): what no longer fits is named and not used.
// Call before the state of an earlier start is restored.
void keep_references(RunParts& parts);

}  // namespace trainer
