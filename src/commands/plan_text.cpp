#include "commands/plan_text.h"

#include <iomanip>
#include <sstream>

#include "trainer/base/strings.h"

namespace trainer {

nlohmann::ordered_json names_of(const Offload& offload) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  if (offload.optimizer) names.push_back("optimizer");
  if (offload.weights) names.push_back("weights");
  if (offload.activations) names.push_back("activations");
  return names;
}

nlohmann::ordered_json as_json(const PlanChoice& choice) {
  const MemoryPlan& plan = choice.plan;
  return {{"batch_size", plan.batch_size},
          {"recompute_blocks", plan.recompute_blocks},
          {"offload", names_of(plan.offload)},
          {"total", plan.total()},
          {"cost", choice.cost}};
}

std::string recomputed_text(const MemoryPlan& plan) {
  if (plan.recompute_blocks == 0) return "no block recomputed in the backward pass";
  return concat(plan.recompute_blocks, " of ", plan.num_blocks, " blocks recomputed in the backward pass");
}

std::string choice_text(const PlanChoice& choice) {
  const MemoryPlan& plan = choice.plan;
  std::ostringstream out;
  out << "batch_size " << plan.batch_size << ", " << recomputed_text(plan) << ": "
      << bytes_string(plan.total())
      << (plan.offloaded.total() > 0 ? concat(" and ", bytes_string(plan.offloaded.total()), " offloaded")
                                     : "")
      << ", " << std::fixed << std::setprecision(2) << choice.cost
      << " times as long as with nothing recomputed, split or offloaded";
  return out.str();
}

}  // namespace trainer
