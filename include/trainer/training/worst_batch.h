// The largest step that a configuration allows, without data: for the memory plan and the rehearsal.
#pragma once

#include <cstdint>

#include "trainer/config/config.h"
#include "trainer/data/sample.h"

namespace trainer {

// The longest that samples are, in tokens; 0: as long as the configuration allows. Of a decoder `source` is
// the whole sample and `target` has no meaning.
struct LongestSample {
  int64_t source = 0, target = 0;
};

// The smallest step that shows what a long run needs: two micro-batches of the largest shape, so that the
// second one runs beside the first one's gradients; where a step is one micro-batch, its samples. All samples
// have the longest source and target, every token is supervised, all ids are 0. With budgets in tokens no cut
// of real samples needs more: rows x longest is the same, and what grows with the square of a length is
// largest for the longest. Packed micro-batches are filled up by a shorter sample.
EffectiveBatch worst_batch(const Config& config, bool encoder_decoder, const LongestSample& longest = {});

}  // namespace trainer
