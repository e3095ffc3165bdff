#include "run/rehearse.h"

#include <chrono>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/memory/summary.h"
#include "trainer/training/worst_batch.h"

#include "base/seconds_since.h"

namespace trainer {

void rehearse(RunParts& parts) {
  const auto begin = std::chrono::steady_clock::now();
  const bool encoder_decoder = parts.model().encoder_decoder();
  const EffectiveBatch batch =
      worst_batch(parts.config, encoder_decoder, parts.lengths, parts.ranks.count(), parts.device.type());
  parts.trainer.rehearse(batch);
  log::info(concat("rehearsal: the largest micro-batches and an update, ", batch.samples.size(),
                   " samples of up to ", token_count(batch.samples[0], encoder_decoder), " tokens, in ",
                   duration_string(seconds_since(begin)), "; peak ",
                   bytes_string(memory_summary(parts.device).peak)));
}

}  // namespace trainer
