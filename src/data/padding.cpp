#include "data/padding.h"

#include <algorithm>

namespace trainer {

namespace {

// A batch with the lengths of these samples, which the index knows: padding does not depend on the tokens.
EffectiveBatch batch_of_lengths(const Dataset& data, const std::vector<int64_t>& indices) {
  EffectiveBatch batch;
  for (const int64_t index : indices) {
    const auto [input, target] = data.lengths(index);
    const int64_t first = data.encoder_decoder() ? input : input + target;
    const int64_t second = data.encoder_decoder() ? target : first;
    batch.samples.push_back({std::vector<int32_t>(static_cast<size_t>(first)),
                             std::vector<int32_t>(static_cast<size_t>(second))});
  }
  return batch;
}

}  // namespace

double PaddingReport::share() const {
  return padded_tokens > 0 ? 1.0 - static_cast<double>(tokens) / static_cast<double>(padded_tokens) : 0;
}

PaddingReport measure_padding(const Dataset& data, const SampleOrder& order, int64_t effective_batch_size,
                              const CutLimits& limits, int64_t most_samples) {
  CollateOptions options;
  options.encoder_decoder = data.encoder_decoder();
  options.packing = limits.packing;
  const int64_t all = steps_per_epoch(order.epoch_size(), effective_batch_size);
  const int64_t steps = std::clamp<int64_t>(most_samples / effective_batch_size, 1, all);
  PaddingReport report;
  for (int64_t i = 0; i < steps; i++) {
    const int64_t step = i * all / steps;
    const EffectiveBatch batch =
        batch_of_lengths(data, order.step_at(step * effective_batch_size, effective_batch_size));
    report.steps++;
    report.samples += static_cast<int64_t>(batch.samples.size());
    for (const std::vector<int64_t>& slots : cut(batch, limits, data.encoder_decoder())) {
      const MicroBatch micro_batch = collate(batch, slots, options, at::kMeta);
      report.micro_batches++;
      report.tokens += micro_batch.tokens;
      report.padded_tokens += micro_batch.input_ids.numel();
      if (micro_batch.decoder_input_ids.defined())
        report.padded_tokens += micro_batch.decoder_input_ids.numel();
    }
  }
  return report;
}

}  // namespace trainer
