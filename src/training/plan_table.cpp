#include <iomanip>
#include <sstream>

#include "trainer/base/strings.h"
#include "trainer/training/plan.h"

namespace trainer {

std::vector<MemoryPlan::Part> MemoryPlan::parts() const {
  return {{"weights", "weights", weights},
          {"adapters", "adapters", adapters},
          {"gradients", "gradients", gradients},
          {"optimizer state", "optimizer_state", optimizer_state},
          {"activations kept", "activations", activations},
          {"recompute and backward", "recompute", recompute},
          {"logits and loss", "loss", loss},
          {"input", "input", input},
          {"update", "update", update},
          {"library reserve", "reserve", reserve}};
}

std::vector<MemoryPlan::Part> MemoryPlan::offloaded_parts() const {
  return {{"weights", "weights", offloaded.weights},
          {"gradients", "gradients", offloaded.gradients},
          {"optimizer state", "optimizer_state", offloaded.optimizer_state},
          {"activations", "activations", offloaded.activations}};
}

std::string plan_table(const MemoryPlan& plan, int64_t limit) {
  std::ostringstream out;
  const bool small = plan.total() < 100'000'000;
  const auto line = [&](const std::string& name, int64_t bytes) -> std::ostream& {
    return out << "  " << std::left << std::setw(24) << name << std::right << std::setw(10) << std::fixed
               << std::setprecision(3) << static_cast<double>(bytes) / (small ? 1e6 : 1e9)
               << (small ? " MB" : " GB");
  };
  for (const MemoryPlan::Part& part : plan.parts()) {
    if (part.bytes > 0) line(part.name, part.bytes) << "\n";
  }
  line("total", plan.total()) << "\n";
  if (limit > 0) {
    line("limit", limit) << "\n";
    const bool fits = plan.total() <= limit;
    line(fits ? "remains" : "missing", fits ? limit - plan.total() : plan.total() - limit) << "\n";
  }
  if (plan.offloaded.total() == 0) return out.str();
  out << "offloaded, not part of the total:\n";
  for (const MemoryPlan::Part& part : plan.offloaded_parts()) {
    if (part.bytes > 0) line(part.name, part.bytes) << "\n";
  }
  line("moved in a step", plan.offloaded.moved)
      << ", some " << std::setprecision(2) << plan.offloaded.seconds << " s\n";
  return out.str();
}

}  // namespace trainer
