// How `trainer plan` says what a plan chose.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "trainer/training/solve_plan.h"

namespace trainer {

nlohmann::ordered_json names_of(const Offload& offload);
nlohmann::ordered_json as_json(const PlanChoice& choice);
std::string recomputed_text(const MemoryPlan& plan);
std::string choice_text(const PlanChoice& choice);

}  // namespace trainer
