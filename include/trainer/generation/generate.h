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
  // Returns whether these new tokens end the answer because their text contains a stop string. May be empty.
  std::function<bool(const Tokens& generated)> stop;
  // Called with each new token; not called during beam search. May be empty.
  std::function<void(size_t input, int32_t token)> on_token;
  // Called after each step with the number of inputs that are answered, and parts of those that are begun:
  // how long their answers are going to be is estimated. May be empty.
  std::function<void(double answered)> on_progress;
  // The number that stands for each input in random keys, so that an answer does not depend on the other
  // inputs in the batch. Empty: the input's index.
  std::vector<uint64_t> numbers;
};

// Returns the new tokens for each input: num_return_sequences answers each, best first with beams. An answer
// does not repeat the prompt, and includes the end token if it was reached. All inputs go through the model
// together, as config.packing says; an answer depends neither on the other inputs nor on padding, except for
// the rounding of larger matrix products. Throws ConfigError if options contradict each other
// (num_return_sequences above num_beams, or above 1 for greedy decoding), and DataError for an empty input.
std::vector<std::vector<Tokens>> generate(const Model& model, const std::vector<Tokens>& inputs,
                                          const GenerationConfig& config, at::Device device,
                                          const GenerationHooks& hooks = {});

// The same for any number of inputs. `batch_size` says how many go through the model at a time, and makes
// that fewer when the device is out of memory: then those that are not answered yet begin again. On the CPU
// the next input takes the place of one whose answer has ended, and where this program's own products are
// used (x86 processors with AVX2; prompts of more than 32 tokens: docs/performance.md) the bits of an answer
// do not depend on which others it was computed with. On a GPU inputs of similar length form batches.
// `deliver` gets the answers of each input in the order of the inputs, as soon as the answers of those before
// it are delivered. hooks.numbers is not used: an input's number is its index. Throws OutOfMemoryError if one
// input alone does not fit.
void generate_in_batches(
    const Model& model, const std::vector<Tokens>& inputs, const GenerationConfig& config, at::Device device,
    OomHandler& batch_size, const GenerationHooks& hooks,
    const std::function<void(size_t input, const std::vector<Tokens>& answers)>& deliver);

}  // namespace trainer
