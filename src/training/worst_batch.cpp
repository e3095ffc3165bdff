#include "trainer/training/worst_batch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trainer/data/batching.h"

namespace trainer {
namespace {

int64_t longest_of(int64_t seen, int64_t allowed) { return seen > 0 ? std::min(seen, allowed) : allowed; }

// A sample whose tokens are all supervised.
Sample sample_of(int64_t source, int64_t target) {
  return {std::vector<int32_t>(static_cast<size_t>(source), 0),
          std::vector<int32_t>(static_cast<size_t>(target), 0)};
}

EffectiveBatch counted(EffectiveBatch batch, bool encoder_decoder) {
  for (const Sample& sample : batch.samples) {
    batch.supervised_tokens += supervised_tokens(sample, encoder_decoder);
    batch.tokens += token_count(sample, encoder_decoder);
  }
  return batch;
}

// Divides `total` among samples of at least one token. Of few samples as many as possible have the longest
// length, because attention's memory grows faster than that. Many even ones take nearly as much, and are
// split into two equal micro-batches.
std::vector<int64_t> portions(int64_t total, int64_t samples, int64_t longest) {
  constexpr int64_t kFew = 3;
  std::vector<int64_t> lengths;
  for (int64_t left = samples; left > 0; left--) {
    const int64_t length = samples <= kFew ? total - (left - 1) : (total + left - 1) / left;
    lengths.push_back(std::clamp<int64_t>(length, 1, longest));
    total -= lengths.back();
  }
  return lengths;
}

// Packed sources and targets each fill their budget: with the fewest samples that fill the one which takes
// more of them.
EffectiveBatch worst_packed_pairs(const Config& config, int64_t source, int64_t target, int64_t effective) {
  const int64_t batch_size = config.training.batch_size;
  const int64_t sources = batch_size * config.data.max_source_length,
                targets = batch_size * config.max_target_length();
  EffectiveBatch batch;
  if (effective * source <= sources && effective * target <= targets) {
    batch.samples.assign(static_cast<size_t>(effective), sample_of(source, target));
    return counted(std::move(batch), true);
  }
  const auto needed = [](int64_t total, int64_t longest) { return (total + longest - 1) / longest; };
  const int64_t samples =
      std::clamp<int64_t>(std::max(needed(sources, source), needed(targets, target)), 1, effective);
  const std::vector<int64_t> source_lengths = portions(sources, samples, source),
                             target_lengths = portions(targets, samples, target);
  for (int micro_batch = 0; micro_batch < 2; micro_batch++) {
    for (size_t i = 0; i < source_lengths.size(); i++)
      batch.samples.push_back(sample_of(source_lengths[i], target_lengths[i]));
  }
  return counted(std::move(batch), true);
}

// Returns how many of a step's `samples` a packed micro-batch of so many tokens can have.
int64_t most_in_a_row(int64_t tokens, int64_t samples, const std::vector<int64_t>& shortest) {
  const int64_t most = std::min(samples, (tokens - 1) / 2);  // the first token of a sample is not supervised
  if (shortest.empty()) return most;
  int64_t count = 0;
  for (size_t next = 0; count < most; next = (next + 1) % shortest.size()) {
    tokens -= shortest[next];
    if (tokens < 0) break;
    count++;
  }
  return count;
}

// Divides `total` among samples of at least two tokens that are not all of one length.
std::vector<int64_t> uneven_portions(int64_t total, int64_t samples) {
  const int64_t each = total / samples, more = total % samples;
  std::vector<int64_t> lengths(static_cast<size_t>(samples), each);
  for (int64_t i = 0; i < more; i++) lengths[static_cast<size_t>(i)]++;
  if (more == 0) {
    lengths.front()++;
    lengths.back()--;
  }
  return lengths;
}

void append(EffectiveBatch& batch, const std::vector<int64_t>& lengths) {
  for (const int64_t length : lengths) batch.samples.push_back(sample_of(length, length));
}

// Adds the memory that packed rows of a decoder need on a GPU beyond rows of equal samples. A row has at most
// so many tokens, and one rank at most so many samples.
void add_room_of_flash_attention(EffectiveBatch& batch, int64_t rows, int64_t tokens, int64_t samples,
                                 const std::vector<int64_t>& shortest) {
  const int64_t length = std::ssize(batch.samples.back().input_ids) - 1;
  if (rows > 1 && length > 1 && batch.samples.size() > 1) batch.samples.back() = sample_of(length, length);
  const int64_t many = most_in_a_row(tokens, samples, shortest);
  if (many <= std::min(rows, std::ssize(batch.samples))) return;
  int64_t planned = 0;
  for (const Sample& sample : batch.samples) planned += std::ssize(sample.input_ids);
  if (planned + 1 >= tokens) return append(batch, uneven_portions(tokens, many));
  // One row with room left, where another rank has the long samples: short ones in place of all but the
  // first.
  const int64_t others = planned - std::ssize(batch.samples.front().input_ids);
  batch.samples.resize(1);
  append(batch, uneven_portions(std::max(others, 2 * many - 1), many - 1));
}

// A teacher says something of each label.
void add_teacher(EffectiveBatch& batch, int64_t top, bool encoder_decoder) {
  for (Sample& sample : batch.samples) {
    const auto size = static_cast<size_t>(top * supervised_tokens(sample, encoder_decoder));
    sample.teacher = {top, std::vector<int32_t>(size, 0), std::vector<float>(size, -1.0F)};
  }
}

EffectiveBatch worst_of_tokens(const Config& config, bool encoder_decoder, const SampleLengths& lengths,
                               int64_t ranks, c10::DeviceType device) {
  const DataConfig& data = config.data;
  const int64_t source_allowed = encoder_decoder ? data.max_source_length : data.max_length;
  const int64_t target_allowed = encoder_decoder ? config.max_target_length() : data.max_length;
  const int64_t source = longest_of(lengths.source, source_allowed);
  const int64_t target = encoder_decoder ? longest_of(lengths.target, target_allowed) : source;

  // Short samples may be many on one rank while another has a long one; samples of full length are divided.
  const int64_t in_a_step = config.sequences_of_a_step(), effective = (in_a_step + ranks - 1) / ranks;
  const bool by_tokens = config.training.micro_batching == MicroBatching::tokens;
  const bool fills = data.packs() && by_tokens;
  if (fills && encoder_decoder) return worst_packed_pairs(config, source, target, effective);

  int64_t rows = config.training.batch_size;
  if (by_tokens) rows = std::min(rows * source_allowed / source, rows * target_allowed / target);
  const int64_t samples = effective > rows ? 2 * rows : effective;

  EffectiveBatch batch;
  batch.samples.assign(static_cast<size_t>(samples), sample_of(source, target));
  // Rows of full length may leave room in the budget; packed samples of other lengths would fill it.
  const int64_t budget = config.training.batch_size * source_allowed, room = budget - rows * source;
  if (fills && samples > rows && room > 0) {
    for (int i = 0; i < 2; i++) batch.samples.push_back(sample_of(room, room));
  }
  if (data.packs() && !encoder_decoder && device != c10::kCPU) {
    const int64_t on_one_rank = in_a_step - (ranks - 1);
    add_room_of_flash_attention(batch, rows, budget, fills ? on_one_rank : 0, lengths.shortest);
  }
  return counted(std::move(batch), encoder_decoder);
}

}  // namespace

// Of a text that is scored, the last position alone has a label.
EffectiveBatch worst_batch(const Config& config, bool encoder_decoder, const SampleLengths& lengths,
                           int64_t ranks, c10::DeviceType device) {
  EffectiveBatch batch = worst_of_tokens(config, encoder_decoder, lengths, ranks, device);
  if (config.objective.distills()) add_teacher(batch, config.objective.top_k, encoder_decoder);
  if (config.objective.row_score() == RowScore::none) return batch;
  if (config.objective.embeds()) {
    if (batch.samples.size() % 2 > 0) batch.samples.push_back(batch.samples.back());
    batch.sides = 2;
  }
  if (config.objective.row_score() == RowScore::tags) return batch;
  batch.supervised_tokens = std::ssize(batch.samples);
  for (Sample& sample : batch.samples) {
    sample.labels.assign(sample.labels.size() + (encoder_decoder ? 0 : 1), kIgnore);
    sample.labels.back() = 0;
  }
  return batch;
}

}  // namespace trainer
