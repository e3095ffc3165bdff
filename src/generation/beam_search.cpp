// Beam search with the same tokens as transformers 5.23 (generation/utils.py, _beam_search), and diverse
// beams in groups (Vijayakumar et al. 2018, with Hamming diversity), of which each is a search that avoids
// the tokens that the groups before it have taken in the same step.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <ranges>

#include <ATen/ATen.h>

#include "base/random.h"
#include "device/target_device.h"
#include "generation/answering.h"
#include "generation/best_scores.h"
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

// The search of one group of beams for one prompt.
class Search {
 public:
  Search(const Tokens& prompt, size_t input, int64_t group, const GenerationConfig& config,
         const GenerationHooks& hooks)
      : c_(config),
        hooks_(hooks),
        input_(input),
        group_(group),
        beams_(config.num_beams / config.num_beam_groups),
        prompt_size_(prompt.size()),
        most_(most_new_tokens(config, prompt.size())) {
    // At first only one beam counts, because all are the same.
    for (int64_t i = 0; i < beams_; i++) running_.push_back({prompt, i == 0 ? 0.0f : kNever, i});
  }

  size_t input() const { return input_; }
  int64_t group() const { return group_; }
  bool done() const { return done_; }
  int64_t generated() const { return static_cast<int64_t>(running_.front().tokens.size() - prompt_size_); }
  const std::vector<Beam>& running() const { return running_; }

  // Takes the best candidates of this step, best first.
  void advance(std::vector<Candidate> candidates) {
    const size_t length = running_.front().tokens.size() - prompt_size_ + 1;
    for (Candidate& candidate : candidates) candidate.ends = ends(candidate, length);
    finish(candidates, length);
    go_on(candidates);
    const bool all_end = std::ranges::all_of(candidates, &Candidate::ends);
    const bool enough = c_.early_stopping == EarlyStopping::yes && full();
    const bool lost = running_.front().score <= kNever;  // nothing is allowed that is not finished
    done_ = all_end || enough || lost || !can_improve(length);
  }

  // The continuations of all beams: the finished ones, best first, then others.
  std::vector<Beam> result() const {
    std::vector<Beam> out = finished_;
    const float divisor = divisor_of(running_.front().tokens.size() - prompt_size_);
    for (const Beam& beam : running_) out.push_back({beam.tokens, beam.score / divisor});
    out.resize(static_cast<size_t>(beams_));
    for (Beam& beam : out) beam.tokens = continuation(beam.tokens);
    return out;
  }

 private:
  float divisor_of(size_t length) const {
    return static_cast<float>(std::pow(static_cast<double>(length), c_.length_penalty));
  }

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

  bool full() const { return std::ssize(finished_) == beams_; }

  // Only as many of the first candidates as there are beams may finish; the others are there so that enough
  // beams continue.
  void finish(const std::vector<Candidate>& candidates, size_t length) {
    const float divisor = divisor_of(length);
    for (size_t i = 0; i < static_cast<size_t>(beams_); i++) {
      if (!candidates[i].ends) continue;
      const float score = candidates[i].score / divisor;
      if (score > kNever) finished_.push_back({with(candidates[i]), score});
    }
    std::ranges::stable_sort(finished_, std::greater{}, &Beam::score);
    if (std::ssize(finished_) > beams_) finished_.resize(static_cast<size_t>(beams_));
  }

  // Continues with the best candidates that do not end; with those that end only if too few are left.
  void go_on(std::vector<Candidate> candidates) {
    for (Candidate& candidate : candidates) candidate.score += candidate.ends ? kNever : 0.0f;
    std::ranges::stable_sort(candidates, std::greater{}, &Candidate::score);
    std::vector<Beam> next;
    for (size_t i = 0; i < static_cast<size_t>(beams_); i++)
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
  size_t input_;
  int64_t group_, beams_;
  size_t prompt_size_;
  int64_t most_;  // new tokens
  std::vector<Beam> running_, finished_;
  bool done_ = false;
};

// The best `count` continuations over all `beams` of each search: scores and indices into [beams * vocab], on
// the host. log_probs [searches * beams, vocab] are added to the scores of the beams so far.
std::pair<at::Tensor, at::Tensor> best(const at::Tensor& log_probs_of_rows, const std::vector<float>& so_far,
                                       int64_t beams, int64_t count, bool sampled,
                                       const std::vector<uint64_t>& keys) {
  if (!sampled && target_of(log_probs_of_rows.device()) == c10::kCPU)
    return best_scores(log_probs_of_rows, so_far, beams, count);
  const at::Tensor added = at::tensor(so_far).to(log_probs_of_rows.device()).unsqueeze(1);
  const at::Tensor log_probs = (log_probs_of_rows + added).view({std::ssize(keys), -1});
  if (!sampled) {
    const auto [scores, indices] = at::topk(log_probs, count);
    return {scores.to(at::kCPU), indices.to(at::kCPU)};
  }
  const at::Tensor indices = sample_without_replacement(log_probs, count, keys);
  return {log_probs.gather(1, indices).to(at::kCPU), indices.to(at::kCPU)};
}

class BeamSearch : public Answering {
 public:
  using Answering::Answering;

 protected:
  void begin(const std::vector<size_t>& inputs, const at::Tensor& logits) override {
    std::vector<int64_t> rows, repeated;
    const size_t first = searches_.size();
    for (size_t row = 0; row < first * beams(); row++) rows.push_back(static_cast<int64_t>(row));
    for (size_t i = 0; i < inputs.size(); i++) {
      for (int64_t group = 0; group < c_.num_beam_groups; group++) {
        searches_.emplace_back(session_.beginning((*inputs_)[inputs[i]]), inputs[i], group, c_, hooks_);
        rows.insert(rows.end(), beams(), static_cast<int64_t>(first * beams() + i));
        repeated.insert(repeated.end(), beams(), static_cast<int64_t>(i));
      }
    }
    session_.select(rows);
    if (logits.defined())
      advance(first, logits.index_select(0, at::tensor(repeated, at::kLong).to(logits.device())));
  }

  void step(const at::Tensor& logits) override { advance(0, logits); }

  std::vector<int64_t> last_tokens() const override {
    std::vector<int64_t> tokens;
    for (const Search& search : searches_) {
      for (const Beam& beam : search.running()) tokens.push_back(beam.tokens.back());
    }
    return tokens;
  }

  std::vector<int64_t> open_tokens() const override {
    std::map<size_t, int64_t> of_input;
    for (const Search& search : searches_) of_input[search.input()] = search.generated();
    const auto tokens = std::views::values(of_input);
    return {tokens.begin(), tokens.end()};
  }

 private:
  // The beams of a search.
  size_t beams() const { return static_cast<size_t>(c_.num_beams / c_.num_beam_groups); }

  // One step of the searches from the `first` on: scores of the next tokens -> new beams. Those that are done
  // leave.
  void advance(size_t first, const at::Tensor& logits) {
    take_best(first, logits);
    std::vector<int64_t> rows;
    std::vector<Search> open;
    for (size_t i = 0; i < searches_.size(); i++) {
      Search& search = searches_[i];
      if (i >= first && search.done()) {
        end(search);
        continue;
      }
      for (size_t beam = 0; beam < beams(); beam++) {
        const int64_t parent = i < first ? static_cast<int64_t>(beam) : search.running()[beam].parent;
        rows.push_back(static_cast<int64_t>(i * beams()) + parent);
      }
      open.push_back(std::move(search));
    }
    searches_ = std::move(open);
    session_.select(rows);
  }

  // Answers an input with the best beams of all its groups, when the last of them has ended.
  void end(const Search& search) {
    Ended& ended = ended_[search.input()];
    ended.groups++;
    std::ranges::move(search.result(), std::back_inserter(ended.beams));
    if (ended.groups < c_.num_beam_groups) return;
    std::vector<Beam>& beams = ended.beams;
    if (c_.num_beam_groups > 1) std::ranges::stable_sort(beams, std::greater{}, &Beam::score);
    beams.resize(static_cast<size_t>(c_.num_return_sequences));
    std::vector<Tokens> answers;
    std::vector<float> scores;
    for (Beam& beam : beams) {
      answers.push_back(std::move(beam.tokens));
      scores.push_back(beam.score);
    }
    if (hooks_.on_scores) hooks_.on_scores(search.input(), std::move(scores));
    answered_.put(search.input(), std::move(answers), search.generated());
    ended_.erase(search.input());
  }

  void take_best(size_t first, const at::Tensor& logits) {
    const at::Tensor log_probs = logits.log_softmax(-1);
    Taken taken;
    for (int64_t group = 0; group < c_.num_beam_groups; group++) {
      std::vector<size_t> searches;
      std::vector<int64_t> rows;
      for (size_t i = first; i < searches_.size(); i++) {
        if (searches_[i].group() != group) continue;
        searches.push_back(i);
        for (size_t beam = 0; beam < beams(); beam++)
          rows.push_back(static_cast<int64_t>((i - first) * beams() + beam));
      }
      if (searches.empty()) continue;
      take_best(searches,
                c_.num_beam_groups == 1
                    ? log_probs
                    : log_probs.index_select(0, at::tensor(rows, at::kLong).to(log_probs.device())),
                taken);
    }
  }

  // The tokens that groups have taken in this step, by input.
  using Taken = std::map<size_t, std::vector<int64_t>>;

  // Makes tokens less likely that earlier groups have taken, by the penalty for each time.
  void avoid(const Taken& taken, const std::vector<size_t>& searches, at::Tensor& log_probs) const {
    for (size_t i = 0; i < searches.size(); i++) {
      const auto found = taken.find(searches_[searches[i]].input());
      if (found == taken.end()) continue;
      at::Tensor rows = log_probs.narrow(0, static_cast<int64_t>(i * beams()), static_cast<int64_t>(beams()));
      for (const int64_t token : found->second) rows.select(1, token).sub_(c_.diversity_penalty);
    }
  }

  // One step of these searches: log-probabilities [searches * beams, vocabulary] of the next tokens.
  void take_best(const std::vector<size_t>& searches, at::Tensor log_probs, Taken& taken) {
    std::vector<const Tokens*> sequences;
    std::vector<float> running_scores;
    std::vector<uint64_t> keys;
    std::vector<int64_t> generated;
    for (const size_t i : searches) {
      const Search& search = searches_[i];
      const uint64_t key = derive(c_.seed, hooks_.numbers[search.input()]);
      keys.push_back(derive(key, static_cast<uint64_t>(search.generated())));
      for (const Beam& beam : search.running()) {
        sequences.push_back(&beam.tokens);
        running_scores.push_back(beam.score);
        generated.push_back(search.generated());
      }
    }
    avoid(taken, searches, log_probs);
    log_probs = processors_.process(log_probs, sequences, generated);
    // Enough candidates that all beams can continue if all others end.
    const int64_t vocab = log_probs.size(1), ends = std::ssize(c_.eos_token_ids),
                  count = static_cast<int64_t>(beams());
    const int64_t kept = std::min(std::max<int64_t>(2, 1 + ends) * count, count * vocab);
    const auto [scores, indices] = best(log_probs, running_scores, count, kept, c_.do_sample, keys);
    for (size_t i = 0; i < searches.size(); i++) {
      std::vector<Candidate> candidates;
      for (int64_t j = 0; j < kept; j++) {
        const int64_t at = static_cast<int64_t>(i) * kept + j, index = indices.const_data_ptr<int64_t>()[at];
        candidates.push_back(
            {scores.const_data_ptr<float>()[at], index / vocab, static_cast<int32_t>(index % vocab)});
      }
      Search& search = searches_[searches[i]];
      search.advance(std::move(candidates));
      for (const Beam& beam : search.running()) taken[search.input()].push_back(beam.tokens.back());
    }
  }

  struct Ended {
    int64_t groups = 0;
    std::vector<Beam> beams;
  };
  std::map<size_t, Ended> ended_;  // groups of inputs of which others still search
  std::vector<Search> searches_;   // in the order of the rows, which are beams() of each
};

}  // namespace

std::unique_ptr<Answering> beam_search(const Model& model, const GenerationConfig& config,
                                       const GenerationHooks& hooks, at::Device device, Answered& answered) {
  return std::make_unique<BeamSearch>(model, config, hooks, device, answered);
}

}  // namespace trainer
