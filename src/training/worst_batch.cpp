#include "trainer/training/worst_batch.h"

#include <algorithm>

#include "trainer/data/batching.h"

namespace trainer {
namespace {

int64_t longest_of(int64_t seen, int64_t allowed) { return seen > 0 ? std::min(seen, allowed) : allowed; }

// A sample whose tokens are all supervised.
Sample sample_of(int64_t source, int64_t target) {
  return {std::vector<int32_t>(static_cast<size_t>(source), 0),
          std::vector<int32_t>(static_cast<size_t>(target), 0)};
}

}  // namespace

EffectiveBatch worst_batch(const Config& config, bool encoder_decoder, const LongestSample& longest,
                           int64_t ranks) {
  const DataConfig& data = config.data;
  const int64_t source_allowed = encoder_decoder ? data.max_source_length : data.max_length;
  const int64_t target_allowed = encoder_decoder ? data.max_target_length : data.max_length;
  const int64_t source = longest_of(longest.source, source_allowed);
  const int64_t target = encoder_decoder ? longest_of(longest.target, target_allowed) : source;

  int64_t rows = config.training.batch_size;
  if (config.training.micro_batching == MicroBatching::tokens) {
    rows = std::min(rows * source_allowed / source, rows * target_allowed / target);
  }
  // Short samples may be many on one rank while another has a long one; samples of full length are divided.
  const int64_t effective = (config.effective_batch_size() + ranks - 1) / ranks;
  const int64_t samples = effective > rows ? 2 * rows : effective;

  EffectiveBatch batch;
  batch.samples.assign(static_cast<size_t>(samples), sample_of(source, target));
  // Rows of full length may leave room in the budget; packed samples of other lengths would fill it.
  const int64_t budget = config.training.batch_size * source_allowed, room = budget - rows * source;
  const bool packs = config.data.packing && config.training.micro_batching == MicroBatching::tokens;
  if (packs && samples > rows && room > 0) {
    for (int i = 0; i < 2; i++) batch.samples.push_back(sample_of(room, room));
  }
  for (const Sample& sample : batch.samples) {
    batch.supervised_tokens += supervised_tokens(sample, encoder_decoder);
    batch.tokens += token_count(sample, encoder_decoder);
  }
  return batch;
}

}  // namespace trainer
