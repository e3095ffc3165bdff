// The plan calculator: what it offers, and the command that computes a plan.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainer::ui {

using Query = std::multimap<std::string, std::string>;

// Returns {"models": [{"name", "kind"}], "methods": [...], "cards": [...]}: the models of configs/models, the
// ways of training, and sizes of GPUs with the cards that have them.
nlohmann::ordered_json plan_choices();

// Returns the arguments of `trainer plan --json`, on all the cards, for a request: model, method, length,
// batch, update, checkpointing. Throws ConfigError for anything that plan_choices() does not offer, and for
// numbers out of range.
std::vector<std::string> plan_arguments(const Query& query);

}  // namespace trainer::ui
