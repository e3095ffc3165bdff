#include "trainer/generation/generate.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "device/target_device.h"
#include "generation/answering.h"

namespace trainer {
namespace {

void check(const GenerationConfig& config) {
  if (config.num_beams > 1 && config.num_return_sequences > config.num_beams)
    throw ConfigError("num_return_sequences must not be above num_beams");
  if (config.num_beams % config.num_beam_groups != 0)
    throw ConfigError(concat("num_beams ", config.num_beams, " cannot be divided into ",
                             config.num_beam_groups, " groups of the same size (num_beam_groups)"));
  if ((config.num_beam_groups > 1) != (config.diversity_penalty > 0))
    throw ConfigError(
        "num_beam_groups above 1 and diversity_penalty above 0 need each other: without the penalty all "
        "groups "
        "find the same");
  if (config.num_beam_groups > 1 && config.do_sample)
    throw ConfigError("beams that are sampled have no groups: leave out num_beam_groups");
  if (config.num_beams == 1 && !config.do_sample && config.num_return_sequences > 1)
    throw ConfigError(
        "num_return_sequences above 1 needs sampling or beams: greedy decoding gives only one answer");
  if (!config.choices.empty() && config.num_return_sequences > std::ssize(config.choices) &&
      !config.do_sample)
    throw ConfigError(concat("num_return_sequences ", config.num_return_sequences, " is more than the ",
                             config.choices.size(), " choices"));
}

void check_inputs(const std::vector<Tokens>& inputs) {
  for (size_t i = 0; i < inputs.size(); i++) {
    if (inputs[i].empty())
      throw DataError(concat("input ", i, " of a generation is empty: it needs a token"));
  }
}

// Answers what waits; on the CPU each place is filled again when its answer has ended.
void answer(const Model& model, Waiting waiting, int64_t size, const GenerationConfig& config,
            at::Device device, const GenerationHooks& hooks, Answered& answered) {
  const auto loop =
      (config.num_beams > 1 ? beam_search : token_by_token)(model, config, hooks, device, answered);
  loop->run(std::move(waiting), size);
}

// The order in which inputs are answered. On a GPU by length, within a window, so that answers are delivered
// along the way.
std::vector<size_t> order_of(const std::vector<Tokens>& inputs, int64_t batch_size, at::Device device) {
  std::vector<size_t> order(inputs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (target_of(device) == c10::kCPU) return order;
  const auto window = static_cast<size_t>(batch_size) * 16;
  for (size_t begin = 0; begin < order.size(); begin += window) {
    const auto first = order.begin() + static_cast<int64_t>(begin);
    std::ranges::stable_sort(first, first + static_cast<int64_t>(std::min(window, order.size() - begin)),
                             std::greater{}, [&](size_t i) { return inputs[i].size(); });
  }
  return order;
}

}  // namespace

std::vector<std::vector<Tokens>> generate(const Model& model, const std::vector<Tokens>& inputs,
                                          const GenerationConfig& config, at::Device device,
                                          const GenerationHooks& hooks) {
  check(config);
  check_inputs(inputs);
  at::NoGradGuard no_grad;
  GenerationHooks numbered = hooks;
  for (size_t i = numbered.numbers.size(); i < inputs.size(); i++) numbered.numbers.push_back(i);
  Answered answered(inputs.size());
  Waiting waiting{.inputs = inputs, .order = std::vector<size_t>(inputs.size())};
  std::iota(waiting.order.begin(), waiting.order.end(), size_t{0});
  answer(model, std::move(waiting), std::ssize(inputs), config, device, numbered, answered);
  return std::move(answered.answers);
}

void generate_in_batches(
    const Model& model, const std::vector<Tokens>& inputs, const GenerationConfig& config, at::Device device,
    OomHandler& batch_size, const GenerationHooks& hooks,
    const std::function<void(size_t input, const std::vector<Tokens>& answers)>& deliver) {
  check(config);
  check_inputs(inputs);
  GenerationHooks numbered = hooks;
  for (size_t i = numbered.numbers.size(); i < inputs.size(); i++) numbered.numbers.push_back(i);
  const std::vector<size_t> order = order_of(inputs, batch_size.size(), device);
  Answered answered(inputs.size());
  size_t next = 0;
  answered.on_input = [&] {
    while (next < inputs.size() && !answered.answers[next].empty()) {
      const size_t input = next++;  // once, also if it throws
      deliver(input, answered.answers[input]);
    }
  };
  // Pieces, so that a smaller size is not kept for all that is left.
  const size_t piece = static_cast<size_t>(batch_size.size()) * 16;
  for (size_t first = 0; first < order.size(); first += piece) {
    batch_size.run([&](int64_t size) {
      at::NoGradGuard no_grad;
      Waiting waiting{.inputs = inputs, .order = {}, .apart = target_of(device) == c10::kCPU};
      for (size_t i = first; i < std::min(first + piece, order.size()); i++) {
        if (answered.answers[order[i]].empty()) waiting.order.push_back(order[i]);
      }
      answer(model, std::move(waiting), size, config, device, numbered, answered);
    });
  }
}

}  // namespace trainer
