#include "data/measure.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "data/pooled_file.h"

namespace trainer {

// Works in parts, by the first bits of the hash: only one part at a time is sorted and copied.
Repeats find_repeats(const std::vector<uint64_t>& hashes, size_t named) {
  constexpr uint64_t kPartBits = 5;
  Repeats repeats;
  std::vector<std::pair<uint64_t, int64_t>> part;
  for (uint64_t prefix = 0; prefix < (uint64_t{1} << kPartBits); prefix++) {
    part.clear();
    for (size_t row = 0; row < hashes.size(); row++) {
      if (hashes[row] >> (64 - kPartBits) == prefix) part.emplace_back(hashes[row], row);
    }
    std::ranges::sort(part);
    size_t original = 0;
    for (size_t at = 1; at < part.size(); at++) {
      if (part[at].first != part[original].first) {
        original = at;
        continue;
      }
      repeats.count++;
      repeats.first.push_back({part[at].second, part[original].second});
    }
    std::ranges::sort(repeats.first, {}, &Repeat::row);
    repeats.first.resize(std::min(repeats.first.size(), named));
  }
  return repeats;
}

SeenHashes::SeenHashes(std::vector<uint64_t> hashes) : hashes_(std::move(hashes)) {
  std::ranges::sort(hashes_);
  const auto repeated = std::ranges::unique(hashes_);
  hashes_.erase(repeated.begin(), repeated.end());
  rows_.assign(hashes_.size(), -1);
}

void SeenHashes::add(uint64_t hash, int64_t row) {
  const auto place = std::ranges::lower_bound(hashes_, hash);
  if (place == hashes_.end() || *place != hash) return;
  int64_t& first = rows_[static_cast<size_t>(place - hashes_.begin())];
  if (first < 0) first = row;
}

std::optional<int64_t> SeenHashes::first_row(uint64_t hash) const {
  const auto place = std::ranges::lower_bound(hashes_, hash);
  if (place == hashes_.end() || *place != hash) return std::nullopt;
  const int64_t row = rows_[static_cast<size_t>(place - hashes_.begin())];
  return row < 0 ? std::nullopt : std::optional(row);
}

namespace {

NamedRow named(const Dataset& data, int64_t index, const std::string& twin) {
  NamedRow row;
  row.origin = data.origin(index);
  row.note = twin;
  return row;
}

RowCount duplicates(const Dataset& data) {
  std::vector<uint64_t> hashes;
  hashes.reserve(static_cast<size_t>(data.size()));
  std::vector<int64_t> pieces;  // samples that do not begin a row
  for (int64_t index = 0; index < data.size(); index++) {
    data.begins_row(index) ? hashes.push_back(data.content(index)) : pieces.push_back(index);
  }
  // Returns the first sample of a row, counting the pieces before it.
  const auto sample_of = [&](int64_t row) {
    int64_t index = row;
    for (const int64_t piece : pieces) {
      if (piece > index) break;
      index++;
    }
    return index;
  };
  const Repeats repeats = find_repeats(hashes, RowCount::kNamed);
  RowCount count{repeats.count, {}};
  for (const Repeat& repeat : repeats.first)
    count.first.push_back(named(data, sample_of(repeat.row), data.origin(sample_of(repeat.same_as))));
  return count;
}

// Returns the rows of `eval` whose hash is also in `train`.
template <class HashOf>
RowCount overlap(const Dataset& train, const Dataset& eval, const HashOf& hash_of) {
  std::vector<uint64_t> hashes;
  for (int64_t index = 0; index < eval.size(); index++) hashes.push_back(hash_of(eval, index));
  SeenHashes seen(hashes);
  for (int64_t index = 0; index < train.size(); index++) seen.add(hash_of(train, index), index);
  RowCount count;
  for (int64_t index = 0; index < eval.size(); index++) {
    const std::optional<int64_t> twin = seen.first_row(hashes[static_cast<size_t>(index)]);
    if (!twin || !eval.begins_row(index)) continue;
    count.count++;
    if (count.first.size() < RowCount::kNamed) count.first.push_back(named(eval, index, train.origin(*twin)));
  }
  return count;
}

}  // namespace

void count_repeats(const Dataset& train, const Dataset* eval, RunDataReport& report) {
  report.train.duplicates = duplicates(train);
  if (eval == nullptr) return;
  report.eval->duplicates = duplicates(*eval);
  const auto input = [](const Dataset& data, int64_t index) { return data.input(index); };
  const auto content = [](const Dataset& data, int64_t index) { return data.content(index); };
  report.overlap = Overlap{overlap(train, *eval, input), overlap(train, *eval, content)};
}

std::string samples_text(const Dataset& data) {
  constexpr int64_t kSpelt = 256;
  const int64_t size = data.size();
  RunningChecksum sum;
  for (int64_t index = 0; index < size; index++) {
    const uint64_t row = data.content(index);
    sum.add(bytes_of(std::span<const uint64_t>(&row, 1)));
    for (int64_t side = 0; side < data.sides(); side++) {
      const Dataset::Lengths length = data.lengths(index, side);
      const std::array<int64_t, 2> tokens{length.input_tokens, length.target_tokens};
      sum.add(bytes_of(std::span<const int64_t>(tokens)));
    }
  }
  const int64_t stride = std::max<int64_t>(size / kSpelt, 1);
  for (int64_t index = 0; index < size; index += stride) {
    for (int64_t side = 0; side < data.sides(); side++) {
      const Sample spelt = data.sample(index, side);
      sum.add(bytes_of(std::span<const int32_t>(spelt.input_ids)));
      sum.add(bytes_of(std::span<const int32_t>(spelt.labels)));
    }
  }
  return concat(grouped(size), size == 1 ? " sample" : " samples", ", xxh3 ", sum.digits());
}

namespace {

// A batch with the lengths of these samples, which the index knows: padding does not depend on the tokens.
EffectiveBatch batch_of_lengths(const Dataset& data, const std::vector<int64_t>& indices) {
  EffectiveBatch batch;
  batch.sides = data.sides();
  for (int64_t side = 0; side < batch.sides; side++) {
    for (const int64_t index : indices) {
      const auto [input, target] = data.lengths(index, side);
      const int64_t first = data.encoder_decoder() ? input : input + target;
      const int64_t second = data.encoder_decoder() ? target : first;
      batch.samples.push_back({std::vector<int32_t>(static_cast<size_t>(first)),
                               std::vector<int32_t>(static_cast<size_t>(second))});
    }
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
