#include "data/span_encoder.h"

#include <algorithm>

#include "trainer/base/strings.h"

#include "base/random.h"

namespace trainer {

SpanEncoder::SpanEncoder(const Fields& fields, const DataConfig& config, const Tokenizer& tokenizer)
    : TextEncoder(fields, config, tokenizer),
      config_(config),
      tokenizer_(tokenizer),
      noise_(config, tokenizer) {}

// Which denoiser makes a piece is a function of the text: lengths must not change with the epoch. It is kept
// in front of the piece's ids.
std::vector<EncodedSample> SpanEncoder::encode(const ReadRow& row) const {
  const std::vector<int32_t> ids = tokenizer_.encode(row.texts.input, false);
  const uint64_t text = derive(0, row.texts.input);
  std::vector<EncodedSample> samples;
  for (auto begin = ids.begin(); begin != ids.end();) {
    const size_t denoiser = derive(text, samples.size()) % noise_.denoisers();
    const auto end = begin + std::min<int64_t>(noise_.longest(denoiser), ids.end() - begin);
    if (end - begin < 2) break;
    EncodedSample piece;
    piece.kept.push_back(static_cast<int32_t>(denoiser));
    piece.kept.insert(piece.kept.end(), begin, end);
    piece.sample = from_kept(piece.kept, row.noise);
    const NoisedLengths lengths = noise_.lengths(denoiser, end - begin);
    piece.input_tokens = lengths.source;
    piece.target_tokens = lengths.target;
    samples.push_back(std::move(piece));
    begin = end;
  }
  const bool drops = config_.long_samples == LongSamples::drop && samples.size() > 1;
  for (EncodedSample& sample : samples) sample.dropped = drops;
  weigh(samples, row.weight);
  return samples;
}

Sample SpanEncoder::from_kept(std::vector<int32_t> ids, uint64_t noise) const {
  return noise_.sample(static_cast<size_t>(ids.front()), std::span(ids).subspan(1), noise);
}

std::string SpanEncoder::settings() const {
  return concat(TextEncoder::settings(), "\nnoise ", static_cast<int>(config_.noise), " ",
                config_.noise_rate.value_or(0), " ", config_.noise_span);
}

}  // namespace trainer
