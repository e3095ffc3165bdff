#include "trainer/generation/generate.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/data/batching.h"

#include "base/random.h"
#include "device/target_device.h"
#include "generation/beam_search.h"
#include "generation/sampling.h"

namespace trainer {
namespace {

// Inputs of one length have no padding in rows of their own, and attention takes them together.
bool packs(const std::vector<Tokens>& inputs, const GenerationConfig& config, at::Device device) {
  if (std::ranges::all_of(inputs, [&](const Tokens& i) { return i.size() == inputs.front().size(); }))
    return false;
  return config.packing.value_or(target_of(device) == c10::kCPU);
}

MicroBatch laid_out(const Model& model, const std::vector<Tokens>& inputs, const GenerationConfig& config,
                    at::Device device) {
  EffectiveBatch batch;
  std::vector<int64_t> slots;
  for (const Tokens& input : inputs) {
    if (input.empty())
      throw DataError(concat("input ", slots.size(), " of a generation is empty: it needs a token"));
    slots.push_back(std::ssize(slots));
    batch.samples.push_back({input, {}});
  }
  CollateOptions options = model.collate_options();
  options.packing = packs(inputs, config, device);
  return collate(batch, slots, options, device);
}

void check(const GenerationConfig& config) {
  if (config.num_beams > 1 && config.num_return_sequences > config.num_beams)
    throw ConfigError("num_return_sequences must not be above num_beams");
  if (config.num_beams == 1 && !config.do_sample && config.num_return_sequences > 1)
    throw ConfigError(
        "num_return_sequences above 1 needs sampling or beams: greedy decoding gives only one answer");
}

// One sequence that is being continued.
struct Sequence {
  size_t input;
  size_t number;  // index of the input sequence
  uint64_t key;
  Tokens tokens;  // prompt and continuation
};

// Continues all sequences, a token at a time, until each has ended.
class TokenByToken {
 public:
  TokenByToken(Generation& generation, const std::vector<Tokens>& prompts, const GenerationConfig& config,
               const GenerationHooks& hooks)
      : generation_(generation), prompts_(prompts), c_(config), hooks_(hooks), processors_(config) {}

  std::vector<std::vector<Tokens>> run(at::Tensor logits) {
    std::vector<std::vector<Tokens>> out(prompts_.size());
    std::vector<int64_t> rows;
    for (size_t i = 0; i < prompts_.size(); i++) {
      out[i].resize(static_cast<size_t>(c_.num_return_sequences));
      const uint64_t key = derive(c_.seed, hooks_.numbers[i]);
      for (size_t number = 0; number < out[i].size(); number++) {
        open_.push_back({i, number, derive(key, number), prompts_[i]});
        rows.push_back(static_cast<int64_t>(i));
      }
    }
    if (c_.num_return_sequences > 1) {
      generation_.select(rows);
      logits = logits.index_select(0, at::tensor(rows, at::kLong).to(logits.device()));
    }
    for (int64_t step = 0;; step++) {
      at::Tensor tokens = choose(logits, step);
      rows = append(tokens.to(at::kCPU), step, out);
      if (rows.empty()) return out;
      if (static_cast<int64_t>(rows.size()) < tokens.size(0)) {
        generation_.select(rows);
        tokens = tokens.index_select(0, at::tensor(rows, at::kLong).to(tokens.device()));
      }
      logits = generation_.next(tokens);
    }
  }

 private:
  at::Tensor choose(const at::Tensor& logits, int64_t step) const {
    std::vector<const Tokens*> sequences;
    std::vector<uint64_t> keys;
    for (const Sequence& sequence : open_) {
      sequences.push_back(&sequence.tokens);
      keys.push_back(derive(sequence.key, static_cast<uint64_t>(step)));
    }
    const at::Tensor scores = processors_.process(logits, sequences, step);
    return c_.do_sample ? sample(scores, keys) : scores.argmax(1);
  }

  // Appends a token to each open sequence; those that have ended go to `out`. Returns the rows that stay.
  std::vector<int64_t> append(const at::Tensor& tokens, int64_t step, std::vector<std::vector<Tokens>>& out) {
    std::vector<int64_t> rows;
    std::vector<Sequence> open;
    for (size_t row = 0; row < open_.size(); row++) {
      Sequence& sequence = open_[row];
      const int32_t token = static_cast<int32_t>(tokens.const_data_ptr<int64_t>()[row]);
      sequence.tokens.push_back(token);
      if (hooks_.on_token) hooks_.on_token(sequence.input, token);
      const auto first = sequence.tokens.begin() + static_cast<int64_t>(prompts_[sequence.input].size());
      const bool ended = step + 1 == most_new_tokens(c_, prompts_[sequence.input].size()) ||
                         std::ranges::find(c_.eos_token_ids, token) != c_.eos_token_ids.end();
      if (ended || (hooks_.stop && hooks_.stop({first, sequence.tokens.end()}))) {
        out[sequence.input][sequence.number] = {first, sequence.tokens.end()};
      } else {
        rows.push_back(static_cast<int64_t>(row));
        open.push_back(std::move(sequence));
      }
    }
    open_ = std::move(open);
    return rows;
  }

  Generation& generation_;
  const std::vector<Tokens>& prompts_;
  const GenerationConfig& c_;
  const GenerationHooks& hooks_;
  LogitsProcessors processors_;
  std::vector<Sequence> open_;
};

}  // namespace

std::vector<std::vector<Tokens>> generate(const Model& model, const std::vector<Tokens>& inputs,
                                          const GenerationConfig& config, at::Device device,
                                          const GenerationHooks& hooks) {
  check(config);
  if (inputs.empty()) return {};
  at::NoGradGuard no_grad;
  GenerationHooks numbered = hooks;
  for (size_t i = numbered.numbers.size(); i < inputs.size(); i++) numbered.numbers.push_back(i);
  const std::unique_ptr<Generation> generation = model.generate(laid_out(model, inputs, config, device));
  std::vector<Tokens> prompts = inputs;
  if (model.encoder_decoder()) {
    const int64_t start = model.collate_options().decoder_start_id;
    prompts.assign(inputs.size(), {config.decoder_start_token_id.value_or(static_cast<int32_t>(start))});
  }
  for (const Tokens& prompt : prompts) {
    if (config.max_length == 0 || std::ssize(prompt) < config.max_length) continue;
    throw DataError(concat("the prompt has ", prompt.size(),
                           " tokens, and max_length of generation_config.json ", "allows ", config.max_length,
                           " in all, answer included; say how many tokens an ",
                           "answer may have (--max-new-tokens), or remove max_length there"));
  }
  const at::Tensor logits = generation->start(prompts.front().front());
  if (config.num_beams > 1) return beam_search(*generation, logits, prompts, config, numbered);
  return TokenByToken(*generation, prompts, config, numbered).run(logits);
}

void generate_in_batches(
    const Model& model, const std::vector<Tokens>& inputs, const GenerationConfig& config, at::Device device,
    OomHandler& batch_size, const GenerationHooks& hooks,
    const std::function<void(size_t input, const std::vector<Tokens>& answers)>& deliver) {
  // Sorted by length only within a window, so that answers are delivered along the way.
  const size_t window = static_cast<size_t>(batch_size.size()) * 16;
  for (size_t begin = 0; begin < inputs.size(); begin += window) {
    std::vector<uint64_t> order(std::min(window, inputs.size() - begin));
    std::iota(order.begin(), order.end(), begin);
    std::ranges::stable_sort(order, std::greater{}, [&](uint64_t i) { return inputs[i].size(); });
    std::map<uint64_t, std::vector<Tokens>> done;
    uint64_t next = begin;
    for (size_t first = 0; first < order.size();) {
      GenerationHooks numbered = hooks;
      std::vector<std::vector<Tokens>> answers;
      batch_size.run([&](int64_t size) {
        const size_t last = std::min(first + static_cast<size_t>(size), order.size());
        numbered.numbers.assign(order.begin() + static_cast<int64_t>(first),
                                order.begin() + static_cast<int64_t>(last));
        std::vector<Tokens> batch;
        for (const uint64_t i : numbered.numbers) batch.push_back(inputs[i]);
        answers = generate(model, batch, config, device, numbered);
      });
      first += answers.size();
      for (size_t i = 0; i < answers.size(); i++) done[numbered.numbers[i]] = std::move(answers[i]);
      for (; done.contains(next); next++) deliver(next, done.at(next));
    }
  }
}

}  // namespace trainer
