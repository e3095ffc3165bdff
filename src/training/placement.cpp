#include "training/placement.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/parallel/ranks.h"

#include "device/target_device.h"
#include "memory/copy_stream.h"
#include "memory/offload.h"
#include "training/gradient_sums.h"
#include "weights/block_store.h"
#include "weights/kept_inputs.h"

namespace trainer {
namespace {

// Returns the parameters with values that a kernel of the device can reach.
std::vector<TrainedParameter> seen_by_device(std::vector<TrainedParameter> parameters, at::Device device) {
  for (TrainedParameter& parameter : parameters) {
    if (parameter.offloaded && !parameter.offloaded->of_other_rank)
      parameter.value = seen_from(parameter.value.detach(), device);
  }
  return parameters;
}

// Returns the bytes of all gradients or of all parameters, whichever are more.
int64_t bytes_exchanged(const std::vector<TrainedParameter>& parameters, StateDtype gradients) {
  int64_t bytes = 0;
  for (const TrainedParameter& parameter : parameters) {
    const int64_t size = gradients == StateDtype::fp32 ? 4 : parameter.value.element_size();
    bytes += parameter.value.numel() * size;
  }
  return bytes;
}

}  // namespace

void run_and_lend(const Model& model, const std::function<void()>& work) {
  if (!model.after_share) return work();
  try {
    work();
  } catch (...) {
    model.after_share();
    throw;
  }
  model.after_share();
}

std::map<std::string, int64_t> sharded_weights(const Ranks& ranks, const Config& config, Model& model) {
  std::map<std::string, int64_t> sharded;
  if (ranks.alone() || config.parallel.shard != Shard::all) return sharded;
  const std::map<const Parameter*, int64_t> owners = shard_weights(model.blocks(), ranks.count());
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (const auto owner = owners.find(&parameter); owner != owners.end()) sharded[name] = owner->second;
  });
  return sharded;
}

std::map<std::string, int64_t> owners_among(const Ranks& ranks, const Config& config,
                                            const std::map<std::string, int64_t>& sharded,
                                            const std::vector<TrainedParameter>& parameters) {
  const Shard shard = config.parallel.shard;
  const bool shards_state =
      shard == Shard::optimizer || shard == Shard::all || (shard == Shard::automatic && !config.lora);
  std::map<std::string, int64_t> owners;
  if (ranks.alone() || !shards_state) return owners;
  std::vector<int64_t> elements, loads(static_cast<size_t>(ranks.count()), 0);
  std::vector<std::string> names;
  for (const TrainedParameter& parameter : parameters) {
    if (const auto owner = sharded.find(parameter.name); owner != sharded.end()) {
      owners[parameter.name] = owner->second;
      loads[static_cast<size_t>(owner->second)] += parameter.value.numel();
    } else {
      names.push_back(parameter.name);
      elements.push_back(parameter.value.numel());
    }
  }
  const std::vector<int64_t> others = divide_among(ranks.count(), elements, loads);
  for (size_t i = 0; i < names.size(); i++) owners[names[i]] = others[i];
  return owners;
}

Placement::Placement(const Config& config, Model& model, at::Device device, const Ranks& ranks,
                     const std::vector<TrainedParameter>& parameters, Gradients& gradients)
    : config_(config),
      model_(model),
      ranks_(ranks),
      parameters_(parameters),
      sharded_(sharded_weights(ranks, config, model)),
      owners_(owners_among(ranks, config, sharded_, parameters)),
      copies_(gradients.stream()),
      seen_(seen_by_device(parameters, device)),
      exchange_(ranks, device,
                sharded_.empty() || target_of(device) == c10::kCPU
                    ? bytes_exchanged(parameters, config.optimizer.grad_dtype)
                    : TensorExchange::kMessageBytes) {
  if (!ranks.alone()) {
    // Weights that are fetched take the same ways during the passes.
    const bool early = sharded_.empty() && !device.is_meta();
    sums_ = std::make_unique<GradientSums>(ranks, exchange_, *copies_, gradients, parameters_,
                                           config.optimizer.grad_dtype, owners_, early);
  }
  lend_offloaded_weights();
  lend_sharded_weights();
}

Placement::~Placement() {
  if (!lends_weights()) return;
  model_.around_block = nullptr;
  model_.after_share = nullptr;
}

void Placement::lend_offloaded_weights() {
  if (config_.memory.offload.activations) kept_inputs_ = std::make_shared<KeptInputs>(copies_);
  if (config_.memory.offload.weights) lend_weights_of(offloaded_blocks(model_.blocks(), copies_));
}

void Placement::lend_sharded_weights() {
  if (sharded_.empty()) return;
  lend_weights_of(sharded_blocks(model_.blocks(), ranks_, exchange_, copies_->device()));
  model_.after_share = [store = block_store_] { store->serve_until_all_end(); };
}

void Placement::lend_weights_of(std::unique_ptr<BlockSource> source) {
  model_.around_block = nullptr;  // it shares the store before
  block_store_.reset();
  block_store_ = std::make_shared<BlockStore>(model_.blocks(), std::move(source), copies_);
  model_.around_block = [store = block_store_](const Module& block, BlockPass pass) {
    return store->enter(block, pass);
  };
}

std::optional<int64_t> Placement::owner_of(const TrainedParameter& parameter) const {
  return owners_.empty() ? std::nullopt : std::optional(owners_.at(parameter.name));
}

bool Placement::is_updated_here(const TrainedParameter& parameter) const {
  return owner_of(parameter).value_or(ranks_.rank()) == ranks_.rank();
}

std::vector<TrainedParameter> Placement::updated_here() const {
  std::vector<TrainedParameter> own;
  std::ranges::copy_if(seen_, std::back_inserter(own),
                       [this](const TrainedParameter& parameter) { return is_updated_here(parameter); });
  return own;
}

void Placement::weights_changed() {
  if (block_store_) block_store_->forget();
}

void Placement::broadcast_updates() const {
  if (owners_.empty()) return;
  std::vector<SharedTensor> weights;
  for (const TrainedParameter& parameter : seen_) {
    if (!sharded_.contains(parameter.name)) weights.push_back({parameter.value, owner_of(parameter)});
  }
  exchange_.broadcast(weights);
}

void Placement::finish_copies() { copies_->finish(); }

void Placement::move_to(at::Device device) {
  const at::NoGradGuard no_grad;
  model_.for_each_parameter([&](const std::string&, Parameter& parameter) {
    if (parameter.value.offloaded()) return;  // it is in the host's memory
    for (const at::Tensor& kept : parameter.value.tensors())
      kept.set_data(kept.detach().to(device, kept.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
  });
  for (size_t i = 0; i < seen_.size(); i++) {
    if (seen_[i].offloaded) seen_[i].value.set_data(seen_from(parameters_[i].value.detach(), device));
  }
  copies_->move_to(device);
  lend_offloaded_weights();
}

}  // namespace trainer
