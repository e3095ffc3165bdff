#include "generation/answering.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "base/random.h"

namespace trainer {

void Answered::put(size_t input, std::vector<Tokens> of_input, int64_t tokens_of_input) {
  answers[input] = std::move(of_input);
  inputs++;
  tokens += tokens_of_input;
  if (on_input) on_input();
}

Answering::Answering(const Model& model, const GenerationConfig& config, const GenerationHooks& hooks,
                     at::Device device, Answered& answered)
    : c_(config), hooks_(hooks), processors_(config), session_(model, config, device), answered_(answered) {}

void Answering::run(Waiting waiting, int64_t size) {
  inputs_ = &waiting.inputs;
  for (;;) {
    while (!waiting.empty() && std::ssize(open_tokens()) < size) {
      const std::vector<size_t> taken = waiting.take(size - std::ssize(open_tokens()));
      std::vector<Tokens> inputs;
      for (const size_t input : taken) inputs.push_back(waiting.inputs[input]);
      begin(taken, session_.add(inputs));
    }
    const std::vector<int64_t> tokens = last_tokens();
    if (tokens.empty()) return;
    step(session_.next(tokens));
    tell_progress();
  }
}

// An answer is expected to be as long as others were, those that have not ended included.
void Answering::tell_progress() const {
  if (!hooks_.on_progress) return;
  const std::vector<int64_t> open = open_tokens();
  double tokens = static_cast<double>(answered_.tokens), expected = static_cast<double>(c_.max_new_tokens);
  for (const int64_t of_one : open) tokens += static_cast<double>(of_one);
  if (answered_.inputs > 0) expected = std::min(expected, tokens / static_cast<double>(answered_.inputs));
  constexpr double most = 0.95;  // of an answer that is longer than expected
  double done = static_cast<double>(answered_.inputs);
  for (const int64_t of_one : open) done += std::min(most, static_cast<double>(of_one) / expected);
  hooks_.on_progress(done);
}

namespace {

// One sequence that is being continued.
struct Sequence {
  size_t input;
  size_t number;  // index of the input's sequence
  uint64_t key;
  Tokens tokens;  // beginning and continuation
  size_t begun;   // tokens of the beginning

  int64_t generated() const { return static_cast<int64_t>(tokens.size() - begun); }
  Tokens continuation() const { return {tokens.begin() + static_cast<int64_t>(begun), tokens.end()}; }
};

class TokenByToken : public Answering {
 public:
  using Answering::Answering;

 protected:
  void begin(const std::vector<size_t>& inputs, const at::Tensor& logits) override {
    std::vector<int64_t> rows, repeated;
    const size_t first = open_.size();
    for (size_t row = 0; row < first; row++) rows.push_back(static_cast<int64_t>(row));
    for (size_t i = 0; i < inputs.size(); i++) {
      Begun& begun = begun_.emplace_back(Begun{inputs[i]});
      begun.answers.resize(static_cast<size_t>(c_.num_return_sequences));
      begun.open = begun.answers.size();
      const uint64_t key = derive(c_.seed, hooks_.numbers[inputs[i]]);
      const Tokens beginning = session_.beginning((*inputs_)[inputs[i]]);
      for (size_t number = 0; number < begun.open; number++) {
        open_.push_back({inputs[i], number, derive(key, number), beginning, beginning.size()});
        rows.push_back(static_cast<int64_t>(first + i));
        repeated.push_back(static_cast<int64_t>(i));
      }
    }
    if (c_.num_return_sequences > 1) session_.select(rows);
    if (!logits.defined()) return;
    const bool repeats = c_.num_return_sequences > 1;
    append(first,
           repeats ? logits.index_select(0, at::tensor(repeated, at::kLong).to(logits.device())) : logits);
  }

  void step(const at::Tensor& logits) override { append(0, logits); }

  std::vector<int64_t> last_tokens() const override {
    std::vector<int64_t> tokens;
    for (const Sequence& sequence : open_) tokens.push_back(sequence.tokens.back());
    return tokens;
  }

  std::vector<int64_t> open_tokens() const override {
    std::vector<int64_t> tokens;
    for (const Begun& begun : begun_) tokens.push_back(begun.tokens);
    return tokens;
  }

 private:
  // An input some of whose sequences are open.
  struct Begun {
    size_t input;
    std::vector<Tokens> answers{};
    size_t open = 0;
    int64_t tokens = 0;  // of the longest
  };

  at::Tensor choose(size_t first, const at::Tensor& logits) const {
    std::vector<const Tokens*> sequences;
    std::vector<int64_t> generated;
    std::vector<uint64_t> keys;
    for (size_t row = first; row < open_.size(); row++) {
      sequences.push_back(&open_[row].tokens);
      generated.push_back(open_[row].generated());
      keys.push_back(derive(open_[row].key, static_cast<uint64_t>(generated.back())));
    }
    const at::Tensor scores = processors_.process(logits, sequences, generated);
    return (c_.do_sample ? sample(scores, keys) : scores.argmax(1)).to(at::kCPU);
  }

  bool has_ended(const Sequence& sequence) const {
    const int32_t token = sequence.tokens.back();
    return sequence.generated() == most_new_tokens(c_, sequence.begun) ||
           std::ranges::find(c_.eos_token_ids, token) != c_.eos_token_ids.end() ||
           (hooks_.stop && hooks_.stop(sequence.continuation()));
  }

  // Appends a token to each sequence from the `first` on; those that have ended leave.
  void append(size_t first, const at::Tensor& logits) {
    const at::Tensor tokens = choose(first, logits);
    std::vector<int64_t> rows;
    std::vector<Sequence> open;
    for (size_t row = 0; row < open_.size(); row++) {
      Sequence& sequence = open_[row];
      if (row >= first) {
        sequence.tokens.push_back(static_cast<int32_t>(tokens.const_data_ptr<int64_t>()[row - first]));
        if (hooks_.on_token) hooks_.on_token(sequence.input, sequence.tokens.back());
        const auto begun = std::ranges::find(begun_, sequence.input, &Begun::input);
        begun->tokens = std::max(begun->tokens, sequence.generated());
        if (has_ended(sequence)) {
          begun->answers[sequence.number] = sequence.continuation();
          begun->open--;
          continue;
        }
      }
      rows.push_back(static_cast<int64_t>(row));
      open.push_back(std::move(sequence));
    }
    const bool some_ended = open.size() < open_.size();
    open_ = std::move(open);
    if (some_ended) session_.select(rows);
    finish();
  }

  void finish() {
    for (size_t i = 0; i < begun_.size();) {
      if (begun_[i].open > 0) {
        i++;
        continue;
      }
      Begun ended = std::move(begun_[i]);
      begun_.erase(begun_.begin() + static_cast<int64_t>(i));
      answered_.put(ended.input, std::move(ended.answers), ended.tokens);
    }
  }

  std::vector<Sequence> open_;  // in the order of the rows
  std::vector<Begun> begun_;
};

}  // namespace

std::unique_ptr<Answering> token_by_token(const Model& model, const GenerationConfig& config,
                                          const GenerationHooks& hooks, at::Device device,
                                          Answered& answered) {
  return std::make_unique<TokenByToken>(model, config, hooks, device, answered);
}

}  // namespace trainer
