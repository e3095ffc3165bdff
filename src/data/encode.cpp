#include "data/encode.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace trainer {
namespace {

void append_eos(std::vector<int32_t>& ids, std::optional<int32_t> eos) {
  if (eos && (ids.empty() || ids.back() != *eos)) ids.push_back(*eos);
}

// Truncates the ids. Returns how many were removed.
int64_t cut(std::vector<int32_t>& ids, int64_t max_length, TruncationSide side) {
  const int64_t over = static_cast<int64_t>(ids.size()) - max_length;
  if (over <= 0) return 0;
  if (side == TruncationSide::right) {
    ids.resize(static_cast<size_t>(max_length));
  } else {
    ids.erase(ids.begin(), ids.begin() + over);
  }
  return over;
}

EncodedSample encode_seq2seq(std::string_view input, std::string_view target, const DataConfig& config,
                             const Tokenizer& tokenizer) {
  EncodedSample encoded;
  Sample& sample = encoded.sample;
  sample.input_ids = tokenizer.encode(input, true);
  sample.labels = tokenizer.encode(target, true);
  const auto eos = tokenizer.eos_id();
  const TruncationSide side = config.truncation_side;
  encoded.input_lost = truncate_keeping_eos(sample.input_ids, config.max_source_length, eos, side);
  encoded.target_lost = truncate_keeping_eos(sample.labels, config.max_target_length, eos, side);
  encoded.input_tokens = static_cast<int64_t>(sample.input_ids.size());
  encoded.target_tokens = static_cast<int64_t>(sample.labels.size());
  return encoded;
}

EncodedSample encode_completion(std::string_view input, std::string_view target, const DataConfig& config,
                                const Tokenizer& tokenizer) {
  EncodedSample encoded;
  Sample& sample = encoded.sample;
  sample.input_ids = tokenizer.encode(input, true);
  const auto prompt = static_cast<int64_t>(sample.input_ids.size());
  std::vector<int32_t> completion = tokenizer.encode(target, false);
  append_eos(completion, tokenizer.eos_id());
  sample.labels.assign(sample.input_ids.size(), kIgnore);
  sample.input_ids.insert(sample.input_ids.end(), completion.begin(), completion.end());
  sample.labels.insert(sample.labels.end(), completion.begin(), completion.end());
  const int64_t lost = cut(sample.input_ids, config.max_length, config.truncation_side);
  cut(sample.labels, config.max_length, config.truncation_side);
  encoded.input_lost = config.truncation_side == TruncationSide::right
                           ? std::max<int64_t>(prompt - config.max_length, 0)
                           : std::min(lost, prompt);
  encoded.target_lost = lost - encoded.input_lost;
  encoded.input_tokens = prompt - encoded.input_lost;
  encoded.target_tokens = static_cast<int64_t>(sample.input_ids.size()) - encoded.input_tokens;
  return encoded;
}

EncodedSample whole_text(std::vector<int32_t> ids) {
  EncodedSample encoded;
  encoded.input_tokens = static_cast<int64_t>(ids.size());
  encoded.sample.labels = ids;
  encoded.sample.input_ids = std::move(ids);
  return encoded;
}

// The last token of a piece begins the next one, because the first token of a sample is never predicted.
std::vector<EncodedSample> split_text(const std::vector<int32_t>& ids, int64_t max_length) {
  std::vector<EncodedSample> pieces;
  const auto end = static_cast<int64_t>(ids.size());
  for (int64_t begin = 0; begin + 1 < end; begin += max_length - 1)
    pieces.push_back(whole_text({ids.begin() + begin, ids.begin() + std::min(begin + max_length, end)}));
  return pieces;
}

std::vector<EncodedSample> encode_text(std::string_view text, const DataConfig& config,
                                       const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = tokenizer.encode(text, true);
  append_eos(ids, tokenizer.eos_id());
  const bool is_long = static_cast<int64_t>(ids.size()) > config.max_length;
  if (is_long && config.long_samples == LongSamples::split) return split_text(ids, config.max_length);
  const int64_t lost = cut(ids, config.max_length, config.truncation_side);
  std::vector<EncodedSample> samples{whole_text(std::move(ids))};
  samples.front().input_lost = lost;
  return samples;
}

}  // namespace

int64_t truncate_keeping_eos(std::vector<int32_t>& ids, int64_t max_length, std::optional<int32_t> eos,
                             TruncationSide side) {
  const bool closed = eos && !ids.empty() && ids.back() == *eos;
  const int64_t lost = cut(ids, max_length, side);
  if (lost > 0 && closed && !ids.empty()) ids.back() = *eos;
  return lost;
}

void weigh(std::vector<EncodedSample>& samples, float weight) {
  if (weight == 1) return;
  for (EncodedSample& encoded : samples) {
    auto& labels = encoded.sample.labels;
    auto& weights = encoded.sample.weights;
    if (weight == 0) {
      std::ranges::fill(labels, kIgnore);
      weights.clear();
      encoded.counts = false;
    } else if (weights.empty()) {
      weights.assign(labels.size(), weight);
    } else {
      for (float& each : weights) each *= weight;
    }
  }
}

EncodedSample encode_marked(const std::vector<int32_t>& ids, const std::vector<bool>& learn,
                            const std::vector<float>& weights, const DataConfig& config) {
  const size_t kept = std::min(ids.size(), static_cast<size_t>(config.max_length));
  const size_t first = config.truncation_side == TruncationSide::left ? ids.size() - kept : 0;
  EncodedSample encoded;
  encoded.dropped = kept < ids.size() && config.long_samples == LongSamples::drop;
  for (size_t i = 0; i < ids.size(); i++) {
    if (i < first || i >= first + kept) {
      (learn[i] ? encoded.target_lost : encoded.input_lost)++;
      continue;
    }
    encoded.sample.input_ids.push_back(ids[i]);
    encoded.sample.labels.push_back(learn[i] ? ids[i] : kIgnore);
    if (!weights.empty()) encoded.sample.weights.push_back(weights[i]);
    (learn[i] ? encoded.target_tokens : encoded.input_tokens)++;
  }
  return encoded;
}

std::vector<EncodedSample> encode_samples(std::string_view input, std::string_view target, DataKind kind,
                                          const DataConfig& config, const Tokenizer& tokenizer) {
  std::vector<EncodedSample> samples;
  if (kind == DataKind::text) {
    samples = encode_text(input, config, tokenizer);
  } else {
    samples.push_back(kind == DataKind::seq2seq ? encode_seq2seq(input, target, config, tokenizer)
                                                : encode_completion(input, target, config, tokenizer));
  }
  if (config.long_samples == LongSamples::drop) {
    for (EncodedSample& sample : samples) sample.dropped = sample.input_lost + sample.target_lost > 0;
  }
  return samples;
}

}  // namespace trainer
