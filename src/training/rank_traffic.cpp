#include "trainer/training/rank_traffic.h"

#include "trainer/device/target_device.h"
#include "trainer/models/load_model.h"
#include "trainer/optim/gradients.h"
#include "trainer/parallel/ranks.h"
#include "trainer/training/prepare_model.h"

#include "training/rank_owners.h"

namespace trainer {

int64_t share_of_a_rank(const Config& config, int64_t ranks) {
  return (config.effective_batch_size() + ranks - 1) / ranks;
}

RankTraffic rank_traffic(const Config& config, const std::filesystem::path& path, const PlanTarget& target) {
  const PlanningFor planning(target.device);
  const std::unique_ptr<Model> model = model_on_meta(path, target.dtype, /*train_all=*/!config.lora,
                                                     quantisation_of(config), config.memory.offload.weights);
  const auto added = static_cast<int64_t>(config.model.add_tokens.size());
  const int64_t rows = target.vocab_rows > 0 ? target.vocab_rows : model->vocab_size() + added;
  prepare_for_training(*model, config, rows, at::kMeta);
  const std::vector<TrainedParameter> parameters = trained_parameters(*model);
  int64_t weights = 0, gradients = 0;
  for (const TrainedParameter& parameter : parameters) {
    const int64_t elements = parameter.value.numel(), size = parameter.value.element_size();
    weights += elements * size;
    gradients += elements * (config.optimizer.grad_dtype == StateDtype::fp32 ? 4 : size);
  }
  RankTraffic traffic;
  traffic.shards = !owners_among(Ranks::planned(target.ranks), config, parameters).empty();
  const int64_t both = gradients + (traffic.shards ? weights : gradients);
  traffic.sent = both / target.ranks * (target.ranks - 1);
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
