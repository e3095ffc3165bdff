#include "training/rank_traffic.h"

#include <algorithm>
#include <map>

#include "trainer/models/load_model.h"
#include "trainer/optim/gradients.h"
#include "trainer/parallel/ranks.h"

#include "device/target_device.h"
#include "training/placement.h"
#include "training/prepare_model.h"
#include "weights/block_store.h"

namespace trainer {

int64_t share_of_a_rank(const Config& config, int64_t ranks) {
  return (config.sequences_of_a_step() + ranks - 1) / ranks;
}

int64_t micro_batches_of_a_rank(const Config& config, int64_t ranks, int64_t batch_size) {
  return (share_of_a_rank(config, ranks) + batch_size - 1) / batch_size;
}

namespace {

// Each owner sends its weights to each other rank.
int64_t fetched_for_a_micro_batch(Model& model, int64_t ranks) {
  const std::map<const Parameter*, int64_t> owners = shard_weights(model.blocks(), ranks);
  int64_t bytes = 0;
  for (Module* block : model.blocks()) {
    std::vector<int64_t> own(static_cast<size_t>(ranks), 0);
    int64_t all = 0;
    for (const Parameter* weight : large_weights(*block)) {
      own[static_cast<size_t>(owners.at(weight))] += weight->value.nbytes();
      all += weight->value.nbytes();
    }
    const auto [least, most] = std::ranges::minmax(own);
    bytes += std::max(all - least, most * (ranks - 1));
  }
  return 2 * bytes;
}

}  // namespace

int64_t RankTraffic::in_step(const Config& config, int64_t ranks, int64_t batch_size) const {
  return sent + fetched * micro_batches_of_a_rank(config, ranks, batch_size);
}

RankTraffic rank_traffic(const Config& config, const std::filesystem::path& path, const PlanTarget& target) {
  const PlanningFor planning(target.device);
  const bool with_weights = shards_weights(config, target.ranks);
  const std::unique_ptr<Model> model =
      model_on_meta(path, target.dtype, /*train_all=*/!config.lora, quantisation_of(config),
                    config.memory.offload.weights, with_weights ? target.ranks : 1, score_head_for(config));
  const auto added = static_cast<int64_t>(config.model.add_tokens.size());
  const int64_t rows = target.vocab_rows > 0 ? target.vocab_rows : model->vocab_size() + added;
  prepare_for_training(*model, config, rows, at::kMeta);
  const Ranks ranks = Ranks::planned(target.ranks);
  const std::vector<TrainedParameter> parameters = trained_parameters(*model);
  const std::map<std::string, int64_t> sharded = sharded_weights(ranks, config, *model);
  RankTraffic traffic;
  traffic.shards_state = !owners_among(ranks, config, sharded, parameters).empty();
  traffic.shards_weights = with_weights;
  int64_t weights = 0, gradients = 0, early = 0;
  for (const TrainedParameter& parameter : parameters) {
    const int64_t elements = parameter.value.numel(), size = parameter.value.element_size();
    if (!sharded.contains(parameter.name)) weights += elements * size;
    const int64_t gradient = elements * (config.optimizer.grad_dtype == StateDtype::fp32 ? 4 : size);
    gradients += gradient;
    if (!with_weights && !parameter.embedding && parameter.offloaded == nullptr) early += gradient;
  }
  const int64_t both = gradients + (traffic.shards_state ? weights : gradients);
  traffic.sent = both / target.ranks * (target.ranks - 1);
  traffic.early = (traffic.shards_state ? 1 : 2) * early / target.ranks * (target.ranks - 1);
  if (with_weights) traffic.fetched = fetched_for_a_micro_batch(*model, target.ranks);
  return traffic;
}

std::vector<Link> links_for(const Cards& cards) {
  if (cards.machines == 1) {
    return {{"nvlink", "NVLink", 200e9},
            {"pcie", "PCIe 4.0, from GPU to GPU", 20e9},
            {"pcie_host", "PCIe 4.0, through main memory", 8e9}};
  }
  return {{"net_400", "400 Gb/s between machines", 40e9},
          {"net_100", "100 Gb/s between machines", 10e9},
          {"net_10", "10 Gb/s between machines", 1e9}};
}

}  // namespace trainer
