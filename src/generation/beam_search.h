// Beam search with the same tokens as transformers 5.23 (generation/utils.py, _beam_search).
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/generation/generate.h"
#include "trainer/models/model.h"

namespace trainer {

// `prompts`: the tokens that the sequences begin with, one for each row of `logits` [batch, vocab], which is
// what generation.start() returned. Returns num_return_sequences continuations of each prompt, best first.
std::vector<std::vector<Tokens>> beam_search(Generation& generation, at::Tensor logits,
                                             const std::vector<Tokens>& prompts,
                                             const GenerationConfig& config, const GenerationHooks& hooks);

}  // namespace trainer
