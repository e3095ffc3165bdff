// Generation: greedy, sampling, beam search.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/generation/generation_config.h"
#include "trainer/memory/oom.h"
#include "trainer/models/model.h"

namespace trainer {

using Tokens = std::vector<int32_t>;

struct GenerationHooks {
  // Whether these new tokens end the answer, because their text has a stop string in it. May be empty.
  std::function<bool(const Tokens& generated)> stop;
  // Called with each new token, without beams. May be empty.
  std::function<void(size_t input, int32_t token)> on_token;
  // What stands for each input in random keys, so that its answer does not depend on what it is batched with;
  // empty: its index.
  std::vector<uint64_t> numbers;
};

// New tokens for each input: num_return_sequences answers each (the prompt not repeated, the end token
// included when it was reached), best first with beams. All inputs go through the model together, padded; an
// answer depends neither on the others nor on the padding, but for the rounding of larger matrix products.
// Inputs must not be empty. Throws ConfigError where options contradict each other (num_return_sequences
// above num_beams, or above 1 for the most likely answer).
std::vector<std::vector<Tokens>> generate(const Model& model, const std::vector<Tokens>& inputs,
                                          const GenerationConfig& config, at::Device device,
                                          const GenerationHooks& hooks = {});

// The same for any number of inputs, as many of similar length at a time as `batch_size` says, which makes it
// fewer when memory does not suffice. `deliver` gets the answers of each input, in the order of the inputs,
// as soon as those before it are there. hooks.numbers is not used: an input's number is its index. Throws
// OutOfMemoryError where one input alone does not fit.
void generate_in_batches(
    const Model& model, const std::vector<Tokens>& inputs, const GenerationConfig& config, at::Device device,
    OomHandler& batch_size, const GenerationHooks& hooks,
    const std::function<void(size_t input, const std::vector<Tokens>& answers)>& deliver);

}  // namespace trainer
