#include "trainer/data/batching.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "trainer/base/random.h"

namespace trainer {

SampleOrder::SampleOrder(int64_t dataset_size, bool shuffle, int64_t seed)
    : size_(dataset_size), shuffle_(shuffle), seed_(seed) {}

int64_t SampleOrder::epoch_at(int64_t samples_consumed) const { return samples_consumed / size_; }

int64_t SampleOrder::index_at(int64_t samples_consumed) const {
  const int64_t place = samples_consumed % size_;
  if (!shuffle_) return place;
  const uint64_t key = derive(derive(static_cast<uint64_t>(seed_), "sample order"),
                              static_cast<uint64_t>(epoch_at(samples_consumed)));
  return static_cast<int64_t>(
      Permutation(static_cast<uint64_t>(size_), key).at(static_cast<uint64_t>(place)));
}

std::vector<int64_t> SampleOrder::step_at(int64_t samples_consumed, int64_t effective_batch_size) const {
  const int64_t left = size_ - samples_consumed % size_;
  std::vector<int64_t> indices(static_cast<size_t>(std::min(effective_batch_size, left)));
  for (int64_t& index : indices) index = index_at(samples_consumed++);
  return indices;
}

int64_t steps_per_epoch(int64_t dataset_size, int64_t effective_batch_size) {
  return (dataset_size + effective_batch_size - 1) / effective_batch_size;
}

EffectiveBatch load_effective_batch(const Dataset& dataset, const std::vector<int64_t>& indices) {
  EffectiveBatch batch;
  batch.samples.reserve(indices.size());
  for (const int64_t index : indices) {
    const Sample& sample = batch.samples.emplace_back(dataset.sample(index));
    batch.supervised_tokens += supervised_tokens(sample, dataset.encoder_decoder());
    batch.tokens += token_count(sample, dataset.encoder_decoder());
  }
  return batch;
}

int64_t supervised_tokens(const Sample& sample, bool encoder_decoder) {
  const size_t first = encoder_decoder || sample.labels.empty() ? 0 : 1;
  const auto begin = sample.labels.begin() + static_cast<std::ptrdiff_t>(first);
  return sample.labels.end() - begin - std::count(begin, sample.labels.end(), kIgnore);
}

int64_t token_count(const Sample& sample, bool encoder_decoder) {
  return static_cast<int64_t>(sample.input_ids.size() + (encoder_decoder ? sample.labels.size() : 0));
}

namespace {

// Slots by length of source, then of target, the longest first; equal ones in order of their slot.
std::vector<int64_t> slots_by_length(const EffectiveBatch& batch) {
  std::vector<int64_t> slots(batch.samples.size());
  std::iota(slots.begin(), slots.end(), 0);
  const auto lengths = [&](int64_t slot) {
    const Sample& sample = batch.samples[static_cast<size_t>(slot)];
    return std::tuple(sample.input_ids.size(), sample.labels.size());
  };
  std::stable_sort(slots.begin(), slots.end(), [&](int64_t a, int64_t b) { return lengths(a) > lengths(b); });
  return slots;
}

std::vector<std::vector<int64_t>> cut_by_samples(int64_t samples, int64_t batch_size) {
  std::vector<std::vector<int64_t>> groups;
  for (int64_t begin = 0; begin < samples; begin += batch_size) {
    std::vector<int64_t>& group =
        groups.emplace_back(static_cast<size_t>(std::min(batch_size, samples - begin)));
    std::iota(group.begin(), group.end(), begin);
  }
  return groups;
}

}  // namespace

std::vector<std::vector<int64_t>> cut(const EffectiveBatch& batch, const CutLimits& limits,
                                      bool encoder_decoder) {
  if (limits.by == MicroBatching::samples) {
    return cut_by_samples(static_cast<int64_t>(batch.samples.size()), limits.batch_size);
  }
  const int64_t source_budget = limits.batch_size * limits.max_source_length;
  const int64_t target_budget = limits.batch_size * limits.max_target_length;
  std::vector<std::vector<int64_t>> groups;
  int64_t longest_source = 0, longest_target = 0;
  for (const int64_t slot : slots_by_length(batch)) {
    const Sample& sample = batch.samples[static_cast<size_t>(slot)];
    const auto source = static_cast<int64_t>(sample.input_ids.size());
    const auto target = static_cast<int64_t>(sample.labels.size());
    const int64_t rows = groups.empty() ? 0 : static_cast<int64_t>(groups.back().size()) + 1;
    const bool fits = rows > 0 && rows * std::max(longest_source, source) <= source_budget &&
                      (!encoder_decoder || rows * std::max(longest_target, target) <= target_budget);
    if (!fits) {
      groups.emplace_back();
      longest_source = longest_target = 0;
    }
    groups.back().push_back(slot);
    longest_source = std::max(longest_source, source);
    longest_target = std::max(longest_target, target);
  }
  return groups;
}

}  // namespace trainer
