#include "training/changed_settings.h"

#include <limits>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

std::string recompute_value(const Recompute& recompute) {
  if (recompute == Recompute(true)) return "true";
  return concat(recompute.of(std::numeric_limits<int64_t>::max()));
}

}  // namespace

std::string shard_value(Shard shard) {
  switch (shard) {
    case Shard::none:
      return "none";
    case Shard::optimizer:
      return "optimizer";
    case Shard::all:
      return "all";
    case Shard::automatic:
      break;
  }
  return "auto";
}

std::string offload_value(const Offload& offload) {
  std::vector<std::string> names;
  if (offload.optimizer) names.emplace_back("optimizer");
  if (offload.weights) names.emplace_back("weights");
  if (offload.activations) names.emplace_back("activations");
  return concat("[", join(names, ","), "]");
}

std::vector<std::string> changed_settings(const Config& from, const Config& to) {
  std::vector<std::string> lines;
  if (to.training.batch_size != from.training.batch_size) {
    lines.push_back(concat("training.batch_size=", int64_t{to.training.batch_size}));
    if (!from.training.effective_batch_size)
      lines.push_back(concat("training.gradient_accumulation_steps=",
                             from.effective_batch_size() / to.training.batch_size));
  }
  if (to.memory.gradient_checkpointing != from.memory.gradient_checkpointing)
    lines.push_back(
        concat("memory.gradient_checkpointing=", recompute_value(to.memory.gradient_checkpointing)));
  if (to.memory.offload != from.memory.offload)
    lines.push_back(concat("memory.offload=", offload_value(to.memory.offload)));
  if (to.optimizer.name != from.optimizer.name) lines.push_back(concat("optimizer.name=", to.optimizer.name));
  if (to.optimizer.master_weights != from.optimizer.master_weights)
    lines.push_back(concat("optimizer.master_weights=", to.optimizer.master_weights ? "true" : "false"));
  if (to.lora && !from.lora) lines.emplace_back("lora={}");
  if (to.model.quantize != from.model.quantize)
    lines.push_back(concat("model.quantize=", to.model.quantize == Quantize::nf4 ? "nf4" : "none"));
  if (to.model.dtype != from.model.dtype)
    lines.push_back(concat("model.dtype=", to.model.dtype == ModelDtype::bf16 ? "bf16" : "fp32"));
  if (to.parallel.shard != from.parallel.shard)
    lines.push_back(concat("parallel.shard=", shard_value(to.parallel.shard)));
  return lines;
}

}  // namespace trainer
