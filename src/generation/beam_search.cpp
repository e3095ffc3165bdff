#include "generation/beam_search.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "base/random.h"
#include "generation/sampling.h"

namespace trainer {
namespace {

constexpr float kNever = -1e9f;  // the score of a sequence that is out of the search, as in the reference

struct Beam {
  Tokens tokens;       // prompt and continuation
  float score = 0;     // sum of log-probabilities; if finished, divided by length^length_penalty
  int64_t parent = 0;  // the beam of the previous step that it continues
};

// A continuation by one token.
struct Candidate {
  float score;
  int64_t beam;
  int32_t token;
  bool ends = false;
};

// The search for one prompt.
class Search {
 public:
  Search(const Tokens& prompt, size_t input, const GenerationConfig& config, const GenerationHooks& hooks)
      : c_(config),
        hooks_(hooks),
        input_(input),
        prompt_size_(prompt.size()),
        most_(most_new_tokens(config, prompt.size())) {
    // At first only one beam counts, because all are the same.
    for (int64_t i = 0; i < config.num_beams; i++) running_.push_back({prompt, i == 0 ? 0.0f : kNever, i});
  }

  size_t input() const { return input_; }
  bool done() const { return done_; }
  const std::vector<Beam>& running() const { return running_; }

  // Takes the best candidates of this step, best first.
  void advance(std::vector<Candidate> candidates) {
    const size_t length = running_.front().tokens.size() - prompt_size_ + 1;
    for (Candidate& candidate : candidates) candidate.ends = ends(candidate, length);
    finish(candidates, length);
    go_on(candidates);
    const bool all_end = std::ranges::all_of(candidates, &Candidate::ends);
    const bool enough = c_.early_stopping == EarlyStopping::yes && full();
    done_ = all_end || enough || !can_improve(length);
  }

  // num_return_sequences continuations, best first.
  std::vector<Tokens> result() const {
    std::vector<Tokens> out;
    for (const std::vector<Beam>* beams : {&finished_, &running_}) {
      for (const Beam& beam : *beams) {
        if (static_cast<int64_t>(out.size()) == c_.num_return_sequences) break;
        out.push_back(continuation(beam.tokens));
      }
    }
    return out;
  }

 private:
  Tokens continuation(const Tokens& tokens) const {
    return {tokens.begin() + static_cast<int64_t>(prompt_size_), tokens.end()};
  }

  Tokens with(const Candidate& candidate) const {
    Tokens tokens = running_[static_cast<size_t>(candidate.beam)].tokens;
    tokens.push_back(candidate.token);
    return tokens;
  }

  bool ends(const Candidate& candidate, size_t length) const {
    if (static_cast<int64_t>(length) >= most_) return true;
    if (std::ranges::find(c_.eos_token_ids, candidate.token) != c_.eos_token_ids.end()) return true;
    return hooks_.stop && hooks_.stop(continuation(with(candidate)));
  }

  bool full() const { return static_cast<int64_t>(finished_.size()) == c_.num_beams; }

  // Only the first num_beams candidates may finish; the others are there so that enough beams continue.
  void finish(const std::vector<Candidate>& candidates, size_t length) {
    const float divisor = static_cast<float>(std::pow(static_cast<double>(length), c_.length_penalty));
    for (size_t i = 0; i < static_cast<size_t>(c_.num_beams); i++) {
      if (!candidates[i].ends) continue;
      const float score = candidates[i].score / divisor;
      if (score > kNever) finished_.push_back({with(candidates[i]), score});
    }
    std::ranges::stable_sort(finished_, std::greater{}, &Beam::score);
    if (static_cast<int64_t>(finished_.size()) > c_.num_beams)
      finished_.resize(static_cast<size_t>(c_.num_beams));
  }

  // Continues with the best candidates that do not end; with those that end only if too few are left.
  void go_on(std::vector<Candidate> candidates) {
    for (Candidate& candidate : candidates) candidate.score += candidate.ends ? kNever : 0.0f;
    std::ranges::stable_sort(candidates, std::greater{}, &Candidate::score);
    std::vector<Beam> next;
    for (size_t i = 0; i < static_cast<size_t>(c_.num_beams); i++)
      next.push_back({with(candidates[i]), candidates[i].score, candidates[i].beam});
    running_ = std::move(next);
  }

  // Returns whether an open beam may still become better than the worst finished one.
  bool can_improve(size_t length) const {
    if (!full()) return true;
    const bool longest = c_.early_stopping == EarlyStopping::never && c_.length_penalty > 0;
    const double hypothetical = longest ? static_cast<double>(most_) : static_cast<double>(length);
    const float divisor = static_cast<float>(std::pow(hypothetical, c_.length_penalty));
    return running_.front().score / divisor > finished_.back().score;
  }

  const GenerationConfig& c_;
  const GenerationHooks& hooks_;
  size_t input_, prompt_size_;
  int64_t most_;  // new tokens
  std::vector<Beam> running_, finished_;
  bool done_ = false;
};

// The best continuations over all beams of each search: scores and indices into [beams * vocab], on the host.
std::pair<at::Tensor, at::Tensor> best(const at::Tensor& log_probs, int64_t count,
                                       const GenerationConfig& config, const std::vector<uint64_t>& keys) {
  if (!config.do_sample) {
    const auto [scores, indices] = at::topk(log_probs, count);
    return {scores.to(at::kCPU), indices.to(at::kCPU)};
  }
  const at::Tensor indices = sample_without_replacement(log_probs, count, keys);
  return {log_probs.gather(1, indices).to(at::kCPU), indices.to(at::kCPU)};
}

// One step of all searches: scores of the next tokens -> new beams.
void advance(std::vector<Search>& searches, const at::Tensor& logits, const LogitsProcessors& processors,
             const GenerationConfig& config, const GenerationHooks& hooks, int64_t step) {
  std::vector<const Tokens*> sequences;
  std::vector<float> running_scores;
  std::vector<uint64_t> keys;
  for (const Search& search : searches) {
    keys.push_back(derive(derive(config.seed, hooks.numbers[search.input()]), static_cast<uint64_t>(step)));
    for (const Beam& beam : search.running()) {
      sequences.push_back(&beam.tokens);
      running_scores.push_back(beam.score);
    }
  }
  const int64_t count = static_cast<int64_t>(searches.size()), vocab = logits.size(1);
  at::Tensor log_probs = processors.process(logits.log_softmax(-1), sequences, step);
  log_probs = log_probs + at::tensor(running_scores).to(logits.device()).unsqueeze(1);
  // Enough candidates that num_beams can continue if all others end.
  const int64_t ends = static_cast<int64_t>(config.eos_token_ids.size());
  const int64_t kept = std::min(std::max<int64_t>(2, 1 + ends) * config.num_beams, config.num_beams * vocab);
  const auto [scores, indices] = best(log_probs.view({count, -1}), kept, config, keys);
  for (size_t i = 0; i < searches.size(); i++) {
    std::vector<Candidate> candidates;
    for (int64_t j = 0; j < kept; j++) {
      const int64_t at = static_cast<int64_t>(i) * kept + j, index = indices.const_data_ptr<int64_t>()[at];
      candidates.push_back(
          {scores.const_data_ptr<float>()[at], index / vocab, static_cast<int32_t>(index % vocab)});
    }
    searches[i].advance(std::move(candidates));
  }
}

}  // namespace

std::vector<std::vector<Tokens>> beam_search(Generation& generation, at::Tensor logits,
                                             const std::vector<Tokens>& prompts,
                                             const GenerationConfig& config, const GenerationHooks& hooks) {
  const LogitsProcessors processors(config);
  std::vector<std::vector<Tokens>> out(prompts.size());
  std::vector<Search> searches;
  std::vector<int64_t> rows;  // the row of the previous step that each beam continues
  for (size_t i = 0; i < prompts.size(); i++) {
    searches.emplace_back(prompts[i], i, config, hooks);
    rows.insert(rows.end(), static_cast<size_t>(config.num_beams), static_cast<int64_t>(i));
  }
  generation.select(rows);
  logits = logits.index_select(0, at::tensor(rows, at::kLong).to(logits.device()));
  for (int64_t step = 0;; step++) {
    advance(searches, logits, processors, config, hooks, step);
    rows.clear();
    std::vector<int64_t> tokens;
    std::vector<Search> open;
    for (size_t i = 0; i < searches.size(); i++) {
      Search& search = searches[i];
      if (search.done()) {
        out[search.input()] = search.result();
        continue;
      }
      for (const Beam& beam : search.running()) {
        rows.push_back(static_cast<int64_t>(i) * config.num_beams + beam.parent);
        tokens.push_back(beam.tokens.back());
      }
      open.push_back(std::move(search));
    }
    if (open.empty()) return out;
    searches = std::move(open);
    generation.select(rows);
    logits = generation.next(at::tensor(tokens, at::kLong).to(logits.device()));
  }
}

}  // namespace trainer
