// The largest step that a configuration allows, without data: for the memory plan and the rehearsal.
#pragma once

#include <cstdint>

#include "trainer/config/config.h"
#include "trainer/data/sample.h"

namespace trainer {

// The length of the longest sample, in tokens; 0: the longest that the configuration allows. For a decoder,
// `source` is the whole sample and `target` has no meaning.
struct LongestSample {
  int64_t source = 0, target = 0;
};

// Returns the smallest step that needs as much memory as any step of the run. It has two micro-batches of the
// largest shape, so that the second one runs while the gradients of the first exist; or one, if a step is one
// micro-batch. All samples have the longest source and target, every token is supervised, all ids are 0. With
// budgets in tokens, no split of real samples needs more: rows x longest is the same, and what grows with the
// square of a length is largest for the longest. Shorter samples fill up packed micro-batches; those of an
// encoder-decoder fill both budgets. `ranks`: of how many ranks the run is; the batch is then that of one of
// them.
EffectiveBatch worst_batch(const Config& config, bool encoder_decoder, const LongestSample& longest = {},
                           int64_t ranks = 1);

}  // namespace trainer
