#include "generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include <ATen/ATen.h>

#include "base/random.h"

namespace trainer {
namespace {

// Elements (row, token) of scores [rows, vocab], as indices into the flat scores.
class Elements {
 public:
  explicit Elements(const at::Tensor& scores) : vocab_(scores.size(1)) {}
  void add(size_t row, int32_t token) {
    if (token >= 0 && token < vocab_) flat_.push_back(static_cast<int64_t>(row) * vocab_ + token);
  }
  void add(size_t row, const std::vector<int32_t>& tokens) {
    for (const int32_t token : tokens) add(row, token);
  }
  bool empty() const { return flat_.empty(); }
  at::Tensor on(at::Device device) const { return at::tensor(flat_, at::kLong).to(device); }

 private:
  int64_t vocab_;
  std::vector<int64_t> flat_;
};

void fill(at::Tensor& scores, const Elements& elements, double value) {
  if (!elements.empty()) scores.view({-1}).index_fill_(0, elements.on(scores.device()), value);
}

// The tokens that followed the last n - 1 tokens at their earlier occurrences.
void add_repeated_ngrams(Elements& banned, size_t row, const Tokens& tokens, size_t n) {
  if (tokens.size() < n) return;
  const std::span<const int32_t> all(tokens), prefix = all.last(n - 1);
  for (size_t at = 0; at + n <= all.size(); at++) {
    if (std::ranges::equal(all.subspan(at, n - 1), prefix)) banned.add(row, all[at + n - 1]);
  }
}

}  // namespace

int64_t most_new_tokens(const GenerationConfig& config, size_t prompt) {
  if (config.max_length == 0) return config.max_new_tokens;
  return std::min(config.max_new_tokens,
                  std::max<int64_t>(config.max_length - static_cast<int64_t>(prompt), 1));
}

LogitsProcessors::LogitsProcessors(const GenerationConfig& config) : c_(config) {
  // A sampled beam needs a token to continue with, besides those that end it.
  const int64_t ends = static_cast<int64_t>(config.eos_token_ids.size());
  min_tokens_to_keep_ = config.num_beams > 1 ? std::max<int64_t>(ends, 1) + 1 : 1;
  if (config.choices.empty()) return;
  choices_.emplace_back();
  for (const Tokens& choice : config.choices) {
    size_t node = 0;
    for (const int32_t token : choice) {
      const auto [next, is_new] = choices_[node].emplace(token, choices_.size());
      node = next->second;
      if (is_new) choices_.emplace_back();
    }
  }
}

void LogitsProcessors::penalize_repetition(at::Tensor& scores,
                                           const std::vector<const Tokens*>& sequences) const {
  Elements seen(scores);
  for (size_t row = 0; row < sequences.size(); row++) {
    Tokens tokens = *sequences[row];
    std::ranges::sort(tokens);
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    seen.add(row, tokens);
  }
  if (seen.empty()) return;
  const at::Tensor where = seen.on(scores.device()), flat = scores.view({-1}),
                   before = flat.index_select(0, where);
  flat.index_copy_(0, where,
                   at::where(before.lt(0), before * c_.repetition_penalty, before / c_.repetition_penalty));
}

void LogitsProcessors::ban(at::Tensor& scores, const std::vector<const Tokens*>& sequences,
                           const std::vector<int64_t>& generated) const {
  Elements banned(scores);
  for (size_t row = 0; row < sequences.size(); row++) {
    const Tokens& tokens = *sequences[row];
    const int64_t length = static_cast<int64_t>(tokens.size());
    if (c_.no_repeat_ngram_size > 0)
      add_repeated_ngrams(banned, row, tokens, static_cast<size_t>(c_.no_repeat_ngram_size));
    const bool short_of_length = c_.min_new_tokens == 0 && length < c_.min_length;
    if (short_of_length || generated[row] < c_.min_new_tokens) banned.add(row, c_.eos_token_ids);
  }
  fill(scores, banned, -INFINITY);
}

void LogitsProcessors::keep_to_choices(at::Tensor& scores, const std::vector<const Tokens*>& sequences,
                                       const std::vector<int64_t>& generated) const {
  for (size_t row = 0; row < sequences.size() && !choices_.empty(); row++) {
    std::vector<int64_t> allowed;
    std::optional<size_t> node = 0;
    for (const int32_t token : std::span(*sequences[row]).last(static_cast<size_t>(generated[row]))) {
      const auto next = choices_[*node].find(token);
      node = next == choices_[*node].end() ? std::nullopt : std::optional(next->second);
      if (!node) break;  // a beam that is out of the search
    }
    if (node) {
      for (const auto& [token, unused] : choices_[*node]) allowed.push_back(token);
    }
    const at::Tensor of_row = scores.select(0, static_cast<int64_t>(row)),
                     index = at::tensor(allowed, at::kLong).to(scores.device()),
                     kept = of_row.index_select(0, index);
    of_row.fill_(-INFINITY);
    of_row.index_copy_(0, index, kept);
  }
}

void LogitsProcessors::force(at::Tensor& scores, const std::vector<const Tokens*>& sequences,
                             const std::vector<int64_t>& generated) const {
  // Prompts of a batch may differ in length; each row is treated as it is alone.
  Elements forced(scores), suppressed(scores);
  for (size_t row = 0; row < sequences.size(); row++) {
    const size_t prompt = sequences[row]->size() - static_cast<size_t>(generated[row]);
    const bool forces_bos = c_.forced_bos_token_id && sequences[row]->size() == 1;
    const bool is_last = generated[row] == most_new_tokens(c_, prompt) - 1;
    const bool forces_eos = !c_.forced_eos_token_ids.empty() && is_last;
    if (forces_bos || forces_eos) scores.select(0, static_cast<int64_t>(row)).fill_(-INFINITY);
    if (forces_eos) {
      forced.add(row, c_.forced_eos_token_ids);
    } else if (forces_bos) {
      forced.add(row, *c_.forced_bos_token_id);
    }
    const int64_t begin = prompt > 1 || !c_.forced_bos_token_id ? 0 : 1;
    suppressed.add(row, c_.suppress_tokens);
    if (generated[row] == begin) suppressed.add(row, c_.begin_suppress_tokens);
  }
  fill(scores, forced, 0);
  fill(scores, suppressed, -INFINITY);
}

at::Tensor LogitsProcessors::warp(at::Tensor scores) const {
  if (c_.temperature != 1.0) scores = scores / c_.temperature;
  if (c_.top_k > 0) {
    const int64_t k = std::min(std::max(c_.top_k, min_tokens_to_keep_), scores.size(1));
    const at::Tensor least = std::get<0>(at::topk(scores, k)).narrow(1, k - 1, 1);
    scores = scores.masked_fill(scores < least, -INFINITY);
  }
  if (c_.top_p < 1.0) {
    const auto [sorted, order] = at::sort(scores, /*dim=*/-1, /*descending=*/false);
    at::Tensor removed = sorted.softmax(-1).cumsum(-1) <= 1 - c_.top_p;
    const int64_t kept = std::min(min_tokens_to_keep_, scores.size(1));
    removed.narrow(1, scores.size(1) - kept, kept).fill_(false);
    scores = scores.masked_fill(removed.scatter(1, order, removed), -INFINITY);
  }
  if (c_.min_p > 0.0) {
    const at::Tensor probabilities = scores.softmax(-1);
    at::Tensor removed = probabilities < probabilities.amax(-1, /*keepdim=*/true) * c_.min_p;
    const int64_t kept = std::min(min_tokens_to_keep_, scores.size(1));
    removed.scatter_(1, std::get<1>(at::topk(probabilities, kept)), false);
    scores = scores.masked_fill(removed, -INFINITY);
  }
  return scores;
}

at::Tensor LogitsProcessors::process(at::Tensor scores, const std::vector<const Tokens*>& sequences,
                                     const std::vector<int64_t>& generated) const {
  if (c_.repetition_penalty != 1.0) penalize_repetition(scores, sequences);
  ban(scores, sequences, generated);
  keep_to_choices(scores, sequences, generated);
  force(scores, sequences, generated);
  if (c_.do_sample) scores = warp(scores);
  return c_.renormalize_logits ? scores.log_softmax(-1) : scores;
}

namespace {

// Uniform in (0, 1).
double uniform(uint64_t key) { return (static_cast<double>(mix64(key) >> 12) + 0.5) * 0x1p-52; }

}  // namespace

at::Tensor sample(const at::Tensor& scores, const std::vector<uint64_t>& keys) {
  at::Tensor thresholds = at::empty({static_cast<int64_t>(keys.size()), 1}, at::kDouble);
  for (size_t i = 0; i < keys.size(); i++) thresholds.mutable_data_ptr<double>()[i] = uniform(keys[i]);
  const at::Tensor cumulative = scores.softmax(-1).cumsum(-1, at::kDouble);
  const at::Tensor total = cumulative.narrow(1, cumulative.size(1) - 1, 1);
  return at::searchsorted(cumulative, thresholds.to(scores.device()) * total, /*out_int32=*/false,
                          /*right=*/true)
      .squeeze(1);
}

// The largest of log-probability + Gumbel noise (Vieira 2014, "Gumbel-max trick and weighted reservoir
// sampling").
at::Tensor sample_without_replacement(const at::Tensor& scores, int64_t count,
                                      const std::vector<uint64_t>& keys) {
  at::Tensor noise = at::empty(scores.sizes(), at::kFloat);
  for (int64_t row = 0; row < scores.size(0); row++) {
    float* to = noise.mutable_data_ptr<float>() + row * scores.size(1);
    for (int64_t i = 0; i < scores.size(1); i++)
      to[i] = static_cast<float>(
          -std::log(-std::log(uniform(derive(keys[static_cast<size_t>(row)], static_cast<uint64_t>(i))))));
  }
  return std::get<1>(at::topk(scores + noise.to(scores.device()), count));
}

}  // namespace trainer
