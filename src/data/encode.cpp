#include "data/encode.h"

#include <algorithm>
#include <optional>

namespace trainer {
namespace {

void append_eos(std::vector<int32_t>& ids, std::optional<int32_t> eos) {
  if (eos && (ids.empty() || ids.back() != *eos)) ids.push_back(*eos);
}

// How many ids it takes away.
int64_t cut_right(std::vector<int32_t>& ids, int64_t max_length) {
  const int64_t lost = static_cast<int64_t>(ids.size()) - max_length;
  if (lost <= 0) return 0;
  ids.resize(static_cast<size_t>(max_length));
  return lost;
}

EncodedSample encode_seq2seq(std::string_view input, std::string_view target, const DataConfig& config,
                             const Tokenizer& tokenizer) {
  EncodedSample encoded;
  Sample& sample = encoded.sample;
  sample.input_ids = tokenizer.encode(input, true);
  sample.labels = tokenizer.encode(target, true);
  const auto eos = tokenizer.eos_id();
  encoded.input_lost = truncate_keeping_eos(sample.input_ids, config.max_source_length, eos);
  encoded.target_lost = truncate_keeping_eos(sample.labels, config.max_target_length, eos);
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
  const int64_t lost = cut_right(sample.input_ids, config.max_length);
  cut_right(sample.labels, config.max_length);
  encoded.input_tokens = std::min(prompt, config.max_length);
  encoded.input_lost = prompt - encoded.input_tokens;
  encoded.target_lost = lost - encoded.input_lost;
  encoded.target_tokens = static_cast<int64_t>(sample.input_ids.size()) - encoded.input_tokens;
  return encoded;
}

EncodedSample encode_text(std::string_view text, const DataConfig& config, const Tokenizer& tokenizer) {
  EncodedSample encoded;
  Sample& sample = encoded.sample;
  sample.input_ids = tokenizer.encode(text, true);
  append_eos(sample.input_ids, tokenizer.eos_id());
  encoded.input_lost = cut_right(sample.input_ids, config.max_length);
  encoded.input_tokens = static_cast<int64_t>(sample.input_ids.size());
  sample.labels = sample.input_ids;
  return encoded;
}

}  // namespace

int64_t truncate_keeping_eos(std::vector<int32_t>& ids, int64_t max_length, std::optional<int32_t> eos) {
  const bool closed = eos && !ids.empty() && ids.back() == *eos;
  const int64_t lost = cut_right(ids, max_length);
  if (lost > 0 && closed && !ids.empty()) ids.back() = *eos;
  return lost;
}

EncodedSample encode_sample(std::string_view input, std::string_view target, DataKind kind,
                            const DataConfig& config, const Tokenizer& tokenizer) {
  if (kind == DataKind::seq2seq) return encode_seq2seq(input, target, config, tokenizer);
  if (kind == DataKind::text) return encode_text(input, config, tokenizer);
  return encode_completion(input, target, config, tokenizer);
}

}  // namespace trainer
