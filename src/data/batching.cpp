#include "trainer/data/batching.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/parallel/ranks.h"

#include "base/random.h"

namespace trainer {

namespace {

int64_t permuted(int64_t place, int64_t size, uint64_t key) {
  return static_cast<int64_t>(Permutation(static_cast<uint64_t>(size), key).at(static_cast<uint64_t>(place)));
}

}  // namespace

int64_t SampleSet::in_epoch() const {
  return std::max<int64_t>(1, std::llround(weight * static_cast<double>(samples)));
}

SampleOrder::SampleOrder(int64_t dataset_size, bool shuffle, int64_t seed)
    : SampleOrder({SampleSet{.samples = dataset_size}}, shuffle, seed) {}

SampleOrder::SampleOrder(std::vector<SampleSet> sets, bool shuffle, int64_t seed)
    : sets_(std::move(sets)), size_(0), shuffle_(shuffle), seed_(seed) {
  for (const SampleSet& set : sets_) size_ += set.in_epoch();
}

int64_t SampleOrder::epoch_at(int64_t samples_consumed) const { return samples_consumed / size_; }

int64_t SampleOrder::index_at(int64_t samples_consumed) const {
  const int64_t place = samples_consumed % size_, epoch = epoch_at(samples_consumed);
  if (!shuffle_) return set_index(epoch, place);
  const uint64_t key =
      derive(derive(static_cast<uint64_t>(seed_), "sample order"), static_cast<uint64_t>(epoch));
  return set_index(epoch, permuted(place, size_, key));
}

// Returns the dataset index at a place of the unshuffled epoch, which goes set by set.
int64_t SampleOrder::set_index(int64_t epoch, int64_t place) const {
  int64_t first = 0;
  size_t number = 0;
  for (; place >= sets_[number].in_epoch(); number++) {
    place -= sets_[number].in_epoch();
    first += sets_[number].samples;
  }
  const int64_t samples = sets_[number].samples, whole = sets_[number].in_epoch() / samples * samples;
  if (place < whole) return first + place % samples;
  // The fractional part of the set in this epoch: the parts of all epochs form one long sequence of places.
  const int64_t at = epoch * (sets_[number].in_epoch() - whole) + place - whole;
  if (!shuffle_) return first + at % samples;
  const uint64_t key = derive(derive(derive(static_cast<uint64_t>(seed_), "part of a set"), number),
                              static_cast<uint64_t>(at / samples));
  return first + permuted(at % samples, samples, key);
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

namespace {

// Slots that stay together: a sample on its own, or those of a group.
using Unit = std::vector<int64_t>;

// The units of these slots, by the first slot of each.
std::vector<Unit> units_of(const std::vector<Sample>& samples, const std::vector<int64_t>& slots) {
  std::vector<Unit> units;
  std::map<int64_t, size_t> of_group;
  for (const int64_t slot : slots) {
    const int64_t group = samples[static_cast<size_t>(slot)].group;
    const size_t unit = group < 0 ? units.size() : of_group.try_emplace(group, units.size()).first->second;
    if (unit == units.size()) units.emplace_back();
    units[unit].push_back(slot);
  }
  return units;
}

std::vector<int64_t> concatenated(const std::vector<Unit>& units) {
  std::vector<int64_t> slots;
  for (const Unit& unit : units) slots.insert(slots.end(), unit.begin(), unit.end());
  return slots;
}

}  // namespace

std::vector<int64_t> EffectiveBatch::own_slots() const {
  std::vector<int64_t> slots(samples.size());
  std::iota(slots.begin(), slots.end(), 0);
  if (share.of == 1) return slots;
  const std::vector<Unit> units = units_of(samples, slots);
  std::vector<int64_t> tokens(units.size(), 0);
  for (size_t unit = 0; unit < units.size(); unit++) {
    for (const int64_t slot : units[unit]) {
      const Sample& sample = samples[static_cast<size_t>(slot)];
      tokens[unit] += static_cast<int64_t>(sample.input_ids.size() + sample.labels.size());
    }
  }
  const std::vector<int64_t> ranks = divide_among(share.of, tokens);
  slots.clear();
  for (size_t unit = 0; unit < units.size(); unit++) {
    if (ranks[unit] == share.rank) slots.insert(slots.end(), units[unit].begin(), units[unit].end());
  }
  std::ranges::sort(slots);
  return slots;
}

EffectiveBatch load_effective_batch(const Dataset& dataset, const std::vector<int64_t>& indices) {
  EffectiveBatch batch;
  batch.sides = dataset.sides();
  batch.reference_of_others = dataset.references_of_others(indices);
  batch.samples.resize(indices.size() * static_cast<size_t>(batch.sides));
  for (size_t row = 0; row < indices.size(); row++) {
    size_t slot = row;
    for (Sample& sample : dataset.samples(indices[row])) {
      batch.supervised_tokens += supervised_tokens(sample, dataset.encoder_decoder());
      batch.tokens += token_count(sample, dataset.encoder_decoder());
      batch.samples[slot] = std::move(sample);
      slot += indices.size();
    }
  }
  return batch;
}

int64_t supervised_tokens(const Sample& sample, bool encoder_decoder) {
  const size_t first = encoder_decoder || sample.labels.empty() ? 0 : 1;
  const auto begin = sample.labels.begin() + static_cast<std::ptrdiff_t>(first);
  return sample.labels.end() - begin - std::count(begin, sample.labels.end(), kIgnore);
}

double supervised_weight(const Sample& sample, bool encoder_decoder) {
  if (sample.weights.empty()) return static_cast<double>(supervised_tokens(sample, encoder_decoder));
  double sum = 0;
  for (size_t i = encoder_decoder ? 0 : 1; i < sample.labels.size(); i++)
    if (sample.labels[i] != kIgnore) sum += static_cast<double>(sample.weights[i]);
  return sum;
}

int64_t token_count(const Sample& sample, bool encoder_decoder) {
  return static_cast<int64_t>(sample.input_ids.size() + (encoder_decoder ? sample.labels.size() : 0));
}

namespace {

std::vector<Unit> own_units(const EffectiveBatch& batch) {
  return units_of(batch.samples, batch.own_slots());
}

struct Lengths {
  int64_t source = 0, target = 0;  // lengths of the longest samples
  auto operator<=>(const Lengths&) const = default;
};

Lengths lengths_of(const EffectiveBatch& batch, const Unit& unit) {
  Lengths longest;
  for (const int64_t slot : unit) {
    const Sample& sample = batch.samples[static_cast<size_t>(slot)];
    longest.source = std::max(longest.source, std::ssize(sample.input_ids));
    longest.target = std::max(longest.target, std::ssize(sample.labels));
  }
  return longest;
}

// Returns the units of this process's share, sorted by the length of the source, then of the target, longest
// first. Ties are in slot order.
std::vector<Unit> units_by_length(const EffectiveBatch& batch) {
  std::vector<Unit> units = own_units(batch);
  std::ranges::stable_sort(units, std::greater(), [&](const Unit& unit) { return lengths_of(batch, unit); });
  return units;
}

int64_t halved(int64_t size, int64_t times) { return times < 63 ? size >> times : 0; }

std::vector<std::vector<int64_t>> cut_by_samples(const std::vector<Unit>& units, int64_t batch_size) {
  std::vector<std::vector<int64_t>> groups;
  for (const Unit& unit : units) {
    if (groups.empty() || std::ssize(groups.back()) + std::ssize(unit) > batch_size) groups.emplace_back();
    groups.back().insert(groups.back().end(), unit.begin(), unit.end());
  }
  return groups;
}

// Splits the units, longest first, at the lowest total cost. A micro-batch costs its padded tokens and a
// fixed overhead. Uses dynamic programming over the end of the last group. No group exceeds the budgets,
// except a single unit, which is always allowed.
std::vector<std::vector<int64_t>> cut_by_tokens(const EffectiveBatch& batch, const CutLimits& limits,
                                                bool encoder_decoder) {
  const int64_t source_budget = halved(limits.batch_size * limits.max_source_length, limits.halvings);
  const int64_t target_budget = halved(limits.batch_size * limits.max_target_length, limits.halvings);
  const std::vector<Unit> units = units_by_length(batch);
  std::vector<int64_t> least(units.size() + 1,
                             std::numeric_limits<int64_t>::max());  // of the first n units
  std::vector<size_t> begin_of_last(units.size() + 1, 0);
  least[0] = 0;
  for (size_t end = 1; end <= units.size(); end++) {
    int64_t source = 0, target = 0, rows = 0;
    for (size_t begin = end; begin-- > 0;) {
      const Lengths longest = lengths_of(batch, units[begin]);
      source = std::max(source, longest.source);
      if (encoder_decoder) target = std::max(target, longest.target);
      rows += std::ssize(units[begin]);
      if (end - begin > 1 && (rows * source > source_budget || rows * target > target_budget)) break;
      const int64_t cost = least[begin] + rows * (source + target) + limits.overhead_tokens;
      if (cost < least[end]) {
        least[end] = cost;
        begin_of_last[end] = begin;
      }
    }
  }
  std::vector<std::vector<int64_t>> groups;
  for (size_t end = units.size(); end > 0; end = begin_of_last[end]) {
    groups.push_back(concatenated({units.begin() + static_cast<int64_t>(begin_of_last[end]),
                                   units.begin() + static_cast<int64_t>(end)}));
  }
  std::ranges::reverse(groups);
  return groups;
}

// The tokens that a unit takes in a packed row.
PackedBudget tokens_of(const EffectiveBatch& batch, const Unit& unit, bool encoder_decoder) {
  PackedBudget tokens;
  for (const int64_t slot : unit) {
    const Sample& sample = batch.samples[static_cast<size_t>(slot)];
    tokens.tokens += packed_tokens(sample);
    tokens.target_tokens += packed_target_tokens(sample, encoder_decoder);
  }
  return tokens;
}

// Returns the units in the order in which they are packed. An encoder-decoder's samples have two budgets: the
// one that takes the largest share of either goes first.
std::vector<Unit> units_by_share(const EffectiveBatch& batch, const PackedBudget& budget) {
  std::vector<Unit> units = units_by_length(batch);
  if (budget.target_tokens == 0) return units;
  const auto share = [&](const Unit& unit) {
    const PackedBudget tokens = tokens_of(batch, unit, true);
    return std::max(static_cast<double>(tokens.tokens) / static_cast<double>(budget.tokens),
                    static_cast<double>(tokens.target_tokens) / static_cast<double>(budget.target_tokens));
  };
  std::ranges::stable_sort(units, std::greater(), share);
  return units;
}

// Best fit decreasing (Johnson 1973): each unit goes into the group where it leaves the least room (the
// first such group on ties). When it fits in none, it starts a new micro-batch.
std::vector<std::vector<int64_t>> pack(const EffectiveBatch& batch, const PackedBudget& budget) {
  struct Group {
    std::vector<int64_t> slots;
    int64_t room, target_room;
  };
  std::vector<Group> groups;
  for (const Unit& unit : units_by_share(batch, budget)) {
    const auto [tokens, target] = tokens_of(batch, unit, budget.target_tokens > 0);
    Group* best = nullptr;
    for (Group& group : groups) {
      if (group.room < tokens || group.target_room < target) continue;
      if (best == nullptr || group.room + group.target_room < best->room + best->target_room) best = &group;
    }
    if (best == nullptr) best = &groups.emplace_back(Group{{}, budget.tokens, budget.target_tokens});
    best->slots.insert(best->slots.end(), unit.begin(), unit.end());
    best->room -= tokens;
    best->target_room -= target;
  }
  std::vector<std::vector<int64_t>> out;
  for (Group& group : groups) out.push_back(std::move(group.slots));
  return out;
}

std::vector<int64_t> sizes_of(const std::vector<std::vector<int64_t>>& groups) {
  std::vector<int64_t> sizes;
  for (const std::vector<int64_t>& group : groups) sizes.push_back(static_cast<int64_t>(group.size()));
  return sizes;
}

}  // namespace

int64_t packed_tokens(const Sample& sample) {
  return std::max<int64_t>(static_cast<int64_t>(sample.input_ids.size()), 1);
}

int64_t packed_target_tokens(const Sample& sample, bool encoder_decoder) {
  return encoder_decoder ? std::max<int64_t>(static_cast<int64_t>(sample.labels.size()), 1) : 0;
}

PackedBudget packed_budget(const CutLimits& limits, bool encoder_decoder) {
  if (!limits.packing || limits.by == MicroBatching::samples) return {};
  const auto of = [&](int64_t length) {
    return std::max<int64_t>(1, halved(limits.batch_size * length, limits.halvings));
  };
  return {of(limits.max_source_length), encoder_decoder ? of(limits.max_target_length) : 0};
}

std::vector<std::vector<int64_t>> cut(const EffectiveBatch& batch, const CutLimits& limits,
                                      bool encoder_decoder) {
  if (limits.by == MicroBatching::samples) {
    return cut_by_samples(own_units(batch), std::max<int64_t>(1, halved(limits.batch_size, limits.halvings)));
  }
  if (limits.packing) return pack(batch, packed_budget(limits, encoder_decoder));
  return cut_by_tokens(batch, limits, encoder_decoder);
}

bool can_be_split(const EffectiveBatch& batch, const std::vector<int64_t>& slots) {
  return units_of(batch.samples, slots).size() > 1;
}

std::vector<std::vector<int64_t>> cut_as(const EffectiveBatch& batch, MicroBatching by,
                                         const std::vector<int64_t>& samples, const PackedBudget& budget) {
  const std::vector<int64_t> slots =
      concatenated(by == MicroBatching::tokens ? units_by_length(batch) : own_units(batch));
  const int64_t total = std::accumulate(samples.begin(), samples.end(), int64_t{0});
  if (total != std::ssize(slots) || std::ranges::any_of(samples, [](int64_t n) { return n < 1; })) {
    throw DataError(
        concat("a step of ", slots.size(), " samples cannot be split into ", shape_string(samples)));
  }
  if (budget.tokens > 0) {
    std::vector<std::vector<int64_t>> groups = pack(batch, budget);
    if (sizes_of(groups) != samples) {
      throw DataError(concat("a step that is packed with ", budget.tokens, " tokens is split into ",
                             shape_string(sizes_of(groups)), " samples, not into ", shape_string(samples)));
    }
    return groups;
  }
  std::vector<std::vector<int64_t>> groups;
  auto next = slots.begin();
  for (const int64_t count : samples) {
    groups.emplace_back(next, next + count);
    next += count;
  }
  return groups;
}

}  // namespace trainer
