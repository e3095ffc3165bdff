#include "data/span_noise.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/random.h"

namespace trainer {
namespace {

constexpr int64_t kShortest = 2;  // one token stays, and one is taken out

// Returns the lengths of `count` parts of at least one token that are `total` long together. All ways to
// divide are equally likely.
std::vector<int64_t> divided(int64_t total, int64_t count, uint64_t key) {
  std::vector<int64_t> ends;
  if (count > 1) {
    const Permutation places(static_cast<uint64_t>(total - 1), key);
    for (int64_t i = 0; i + 1 < count; i++)
      ends.push_back(static_cast<int64_t>(places.at(static_cast<uint64_t>(i))) + 1);
    std::ranges::sort(ends);
  }
  ends.push_back(total);
  for (size_t i = ends.size() - 1; i > 0; i--) ends[i] -= ends[i - 1];
  return ends;
}

uint64_t hash_of_ids(std::span<const int32_t> ids) {
  return derive(0, std::string_view(reinterpret_cast<const char*>(ids.data()), ids.size_bytes()));
}

// UL2's seven denoisers, with the words in front that its models were trained with.
std::vector<Denoiser> ul2(const Tokenizer& tokenizer) {
  const auto mode = [&](const char* word) { return tokenizer.encode(concat(word, " "), false); };
  const std::vector<int32_t> regular = mode("[NLU]"), extreme = mode("[NLG]"), prefix = mode("[S2S]");
  return {{0.15, 3, true, regular}, {0.15, 8, true, regular},  {0.5, 3, true, extreme},
          {0.5, 8, true, extreme},  {0.15, 64, true, extreme}, {0.5, 64, true, extreme},
          {0.25, 0, true, prefix}};
}

std::vector<Denoiser> denoisers_of(const DataConfig& config, const Tokenizer& tokenizer) {
  if (config.noise == NoiseForm::ul2) return ul2(tokenizer);
  if (config.noise == NoiseForm::prefix) return {{config.noise_rate.value_or(0.5), 0, false}};
  return {{config.noise_rate.value_or(0.15), config.noise_span}};
}

// Returns the most tokens of which source and target are within the lengths.
int64_t longest_of(const Denoiser& denoiser, const DataConfig& config) {
  const auto fits = [&](int64_t tokens) {
    const NoisedLengths lengths = lengths_of(denoiser, tokens);
    return lengths.source <= config.max_source_length && lengths.target <= config.max_target_length;
  };
  const auto range =
      std::views::iota(kShortest, config.max_source_length + config.max_target_length + int64_t{1});
  const auto end = std::ranges::partition_point(range, fits);
  return end == range.begin() ? 0 : *end - 1;
}

}  // namespace

NoisedLengths lengths_of(const Denoiser& denoiser, int64_t tokens) {
  NoisedLengths out;
  const double rounded = std::nearbyint(static_cast<double>(tokens) * denoiser.rate);
  out.taken_out = std::clamp<int64_t>(static_cast<int64_t>(rounded), 1, tokens - 1);
  const int64_t kept = tokens - out.taken_out;
  const double parts =
      denoiser.span == 0 ? 1 : std::nearbyint(static_cast<double>(out.taken_out) / denoiser.span);
  out.parts = std::clamp<int64_t>(static_cast<int64_t>(parts), 1, std::min(out.taken_out, kept));
  const int64_t sentinels = denoiser.marks ? out.parts : 0;
  out.source = std::ssize(denoiser.mode) + kept + sentinels + 1;
  out.target = out.taken_out + sentinels + 1;
  return out;
}

SpanNoise::SpanNoise(const DataConfig& config, const Tokenizer& tokenizer)
    : denoisers_(denoisers_of(config, tokenizer)) {
  const auto eos = tokenizer.eos_id();
  if (!eos) throw ConfigError("data.kind: span_corruption needs a tokenizer with an end token, such as T5's");
  eos_ = *eos;
  while (const auto id = tokenizer.token_to_id(concat("<extra_id_", sentinels_.size(), ">")))
    sentinels_.push_back(*id);
  for (const Denoiser& denoiser : denoisers_) {
    longest_.push_back(longest_of(denoiser, config));
    if (longest_.back() < kShortest)
      throw ConfigError(concat("data.kind: span_corruption: no text fits in data.max_source_length ",
                               config.max_source_length, " and data.max_target_length ",
                               config.max_target_length));
  }
  check_sentinels(config);
}

void SpanNoise::check_sentinels(const DataConfig& config) const {
  int64_t most = 0;
  for (size_t i = 0; i < denoisers_.size(); i++) {
    if (denoisers_[i].marks) most = std::max(most, lengths(i, longest_[i]).parts);
  }
  if (most <= std::ssize(sentinels_)) return;
  throw ConfigError(concat("data.kind: span_corruption: a sample of data.max_source_length ",
                           config.max_source_length, " has up to ", most, " parts, but the tokenizer has ",
                           sentinels_.empty() ? "no sentinels (<extra_id_0>, ...)"
                                              : concat("only ", sentinels_.size(), " sentinels"),
                           "; ",
                           sentinels_.empty() ? "use a tokenizer of T5, or add them with model.add_tokens"
                                              : "choose a smaller length, or a larger data.noise_span"));
}

Sample SpanNoise::sample(size_t denoiser, std::span<const int32_t> ids, uint64_t key) const {
  const Denoiser& of = denoisers_[denoiser];
  const NoisedLengths lengths = lengths_of(of, std::ssize(ids));
  key = derive(key, hash_of_ids(ids));
  const std::vector<int64_t> kept =
      divided(std::ssize(ids) - lengths.taken_out, lengths.parts, derive(key, "kept"));
  const std::vector<int64_t> taken = divided(lengths.taken_out, lengths.parts, derive(key, "taken out"));
  Sample out;
  out.input_ids = of.mode;
  auto at = ids.begin();
  for (size_t part = 0; part < kept.size(); part++) {  // what stays comes first
    out.input_ids.insert(out.input_ids.end(), at, at + kept[part]);
    at += kept[part];
    if (of.marks) {
      out.input_ids.push_back(sentinels_[part]);
      out.labels.push_back(sentinels_[part]);
    }
    out.labels.insert(out.labels.end(), at, at + taken[part]);
    at += taken[part];
  }
  out.input_ids.push_back(eos_);
  out.labels.push_back(eos_);
  return out;
}

}  // namespace trainer
