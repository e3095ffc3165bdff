// Plans for given GPUs, and the time of a step on several (trainer plan --gpus).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/training/solve_plan.h"

#include "config/cards.h"
#include "training/memory_advice.h"
#include "training/rank_traffic.h"

namespace trainer {

// The plans of one configuration for several numbers of ranks. Each is made once and kept.
class PlansByRanks {
 public:
  PlansByRanks(const Config& config, std::filesystem::path model, const PlanTarget& target,
               std::function<void()> after_plan);

  Planner& planner(int64_t ranks);
  // Returns the plan that measures start from: that of the configuration, or what set_start() said.
  const MemoryPlan& start(int64_t ranks);
  void set_start(int64_t ranks, const MemoryPlan& plan);
  MemoryAdvice& advice(int64_t ranks);
  const RankTraffic& traffic(int64_t ranks);
  const Config& config() const { return config_; }

 private:
  PlanTarget target_for(int64_t ranks) const;

  const Config& config_;
  std::filesystem::path model_;
  PlanTarget target_;
  std::function<void()> after_plan_;
  std::map<int64_t, Planner> planners_;
  std::map<int64_t, MemoryPlan> starts_;
  std::map<int64_t, MemoryAdvice> advice_;
  std::map<int64_t, RankTraffic> traffic_;
};

// Returns the share of a GPU's memory that a run may use by default.
int64_t usable(int64_t gpu);

void print_cards(PlansByRanks& plans, const std::vector<Cards>& list, std::ostream& out);
nlohmann::ordered_json cards_as_json(PlansByRanks& plans, const std::vector<Cards>& list);

// The choices of a plan, as `trainer plan` prints them.

nlohmann::ordered_json names_of(const Offload& offload);
nlohmann::ordered_json as_json(const PlanChoice& choice);
std::string recomputed_text(const MemoryPlan& plan);
std::string choice_text(const PlanChoice& choice);

}  // namespace trainer
