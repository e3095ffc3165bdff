// From the scores of the next token to its choice.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/generation/generation_config.h"

namespace trainer {

// Changes the scores of the next token before one is chosen, in the order of transformers 5.23
// (generation/utils.py, _get_logits_processor; generation/logits_process.py).

using Tokens = std::vector<int32_t>;

// Returns how many tokens may follow a prompt: max_new_tokens, or what max_length leaves.
int64_t most_new_tokens(const GenerationConfig& config, size_t prompt);

class LogitsProcessors {
 public:
  explicit LogitsProcessors(const GenerationConfig& config);

  // scores [rows, vocab], fp32: logits, or log-probabilities in a beam search. sequences: all tokens of each
  // row so far, the prompt of a decoder or the start token of an encoder-decoder first; `generated` of them
  // are new, of all rows or of each. Returns the changed scores; a token that is not allowed has -inf.
  at::Tensor process(at::Tensor scores, const std::vector<const Tokens*>& sequences,
                     int64_t generated) const {
    return process(std::move(scores), sequences, std::vector<int64_t>(sequences.size(), generated));
  }
  at::Tensor process(at::Tensor scores, const std::vector<const Tokens*>& sequences,
                     const std::vector<int64_t>& generated) const;

 private:
  void penalize_repetition(at::Tensor& scores, const std::vector<const Tokens*>& sequences) const;
  void ban(at::Tensor& scores, const std::vector<const Tokens*>& sequences,
           const std::vector<int64_t>& generated) const;
  void force(at::Tensor& scores, const std::vector<const Tokens*>& sequences,
             const std::vector<int64_t>& generated) const;
  at::Tensor warp(at::Tensor scores) const;

  const GenerationConfig& c_;
  int64_t min_tokens_to_keep_;
};

// Sampling of tokens: every random number follows from a key, never from what was drawn before.

// One token for each row of scores [rows, vocab] (unnormalised log-probabilities), int64 [rows]. keys: one a
// row.
at::Tensor sample(const at::Tensor& scores, const std::vector<uint64_t>& keys);

// `count` different elements for each row of scores [rows, n], drawn without replacement: their indices,
// int64 [rows, count].
at::Tensor sample_without_replacement(const at::Tensor& scores, int64_t count,
                                      const std::vector<uint64_t>& keys);

}  // namespace trainer
