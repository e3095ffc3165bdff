#include "generation/session.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/data/batching.h"

#include "device/target_device.h"
#include "nn/few_rows_linear.h"

namespace trainer {
namespace {

// On the CPU inputs are packed even if they have one length, so that each is attended to in the same way with
// others and alone.
bool packs(const std::vector<Tokens>& inputs, const GenerationConfig& config, at::Device device) {
  if (target_of(device) == c10::kCPU) return config.packing.value_or(true);
  const bool even =
      std::ranges::all_of(inputs, [&](const Tokens& i) { return i.size() == inputs.front().size(); });
  return !even && config.packing.value_or(false);
}

MicroBatch laid_out(const Model& model, const std::vector<Tokens>& inputs, const GenerationConfig& config,
                    at::Device device) {
  EffectiveBatch batch;
  std::vector<int64_t> slots;
  for (const Tokens& input : inputs) {
    slots.push_back(std::ssize(slots));
    batch.samples.push_back({input, {}});
  }
  CollateOptions options = model.collate_options();
  options.packing = packs(inputs, config, device);
  return collate(batch, slots, options, device);
}

}  // namespace

std::vector<size_t> Waiting::take(int64_t room) {
  const auto is_few = [&](size_t input) { return are_few_rows({std::ssize(inputs[input])}); };
  std::vector<size_t> taken;
  while (!empty() && std::ssize(taken) < room) {
    if (apart && !taken.empty() && is_few(order[next]) != is_few(taken.front())) break;
    taken.push_back(order[next++]);
  }
  return taken;
}

Session::Session(const Model& model, const GenerationConfig& config, at::Device device)
    : model_(model), config_(config), device_(device) {
  if (!model.encoder_decoder()) return;
  const int64_t start = model.collate_options().decoder_start_id;
  start_ = config.decoder_start_token_id.value_or(static_cast<int32_t>(start));
}

at::Tensor Session::add(const std::vector<Tokens>& inputs) {
  for (const Tokens& input : inputs) {
    const size_t size = beginning(input).size();
    if (config_.max_length == 0 || static_cast<int64_t>(size) < config_.max_length) continue;
    throw DataError(concat("the prompt has ", size, " tokens, and max_length of generation_config.json ",
                           "allows ", config_.max_length, " in all, answer included; say how many tokens an ",
                           "answer may have (--max-new-tokens), or remove max_length there"));
  }
  if (!generation_) generation_ = model_.generate(device_);
  return generation_->add(laid_out(model_, inputs, config_, device_));
}

at::Tensor Session::next(const std::vector<int64_t>& tokens) {
  return generation_->next(at::tensor(tokens, at::kLong).to(device_));
}

}  // namespace trainer
