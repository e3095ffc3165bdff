// The largest step that a configuration allows, without data: for the memory plan and the rehearsal.
#pragma once

#include <cstdint>
#include <vector>

#include <c10/core/Device.h>

#include "trainer/config/config.h"
#include "trainer/data/sample.h"

namespace trainer {

// Lengths of the data's samples, in tokens. For a decoder, a sample's `source` is all of it and `target` has
// no meaning.
struct SampleLengths {
  int64_t source = 0, target = 0;  // the longest sample's; 0: the longest that the configuration allows
  // The lengths of a decoder's shortest samples in an epoch, ascending, as often as they occur in it; empty:
  // a sample may have only two tokens. Where the list ends, it begins again.
  std::vector<int64_t> shortest{};
};

// Returns the smallest step that needs as much memory as any step of the run. It has two micro-batches of the
// largest shape, so that the second one runs while the gradients of the first exist; or one, if a step is one
// micro-batch. Its samples, but for those named below, have the longest source and target; every token is
// supervised, all ids are 0. With budgets in tokens, no split of real samples needs more: rows x longest is
// the same, and what grows with the square of a length is largest for the longest. Shorter samples fill up
// packed micro-batches; those of an encoder-decoder fill both budgets.
//
// On a GPU, FlashAttention's backward pass keeps room for 128 more positions of each sample in a packed row
// of a decoder, if the row's samples differ in length. So the last sample is a token shorter. If a row can
// have more samples than at full length, one more micro-batch follows, with as many as lengths.shortest
// allows, of about equal lengths that fill the budget; of several ranks, each may get them instead of its
// share.
//
// `ranks`: of how many ranks the run is; the batch is then that of one of them.
EffectiveBatch worst_batch(const Config& config, bool encoder_decoder, const SampleLengths& lengths = {},
                           int64_t ranks = 1, c10::DeviceType device = c10::kCPU);

}  // namespace trainer
