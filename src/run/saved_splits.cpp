#include "run/saved_splits.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/memory/limit.h"

#include "base/foreign_errors.h"

namespace trainer {
namespace {

using Numbers = std::map<std::string, int64_t>;

// The sizes and limits under which a budget was learned; it holds only for these.
Numbers circumstances(const Config& config, c10::Device device) {
  return {{"batch_size", config.training.batch_size},
          {"by_samples", config.training.micro_batching == MicroBatching::samples ? 1 : 0},
          {"packing", config.data.packs() ? 1 : 0},
          {"eval_batch_size", config.eval_batch_size()},
          {"generation_batch_size", config.generation_batch_size()},
          {"light", config.memory.gradient_checkpointing == Recompute::light() ? 1 : 0},
          {"recomputed_blocks", config.memory.gradient_checkpointing.of(std::numeric_limits<int32_t>::max())},
          {"limit", MemoryLimit::parse(config.memory.limit).bytes().value_or(0)},
          {"on_gpu", device.is_cuda() ? 1 : 0}};
}

// Each budget with its name. `visit(name, number)` for each of its numbers.
template <class Budgets, class Budget, class Visit>
void for_each_number(Budgets& budgets, Budget* generation, const Visit& visit) {
  const auto numbers_of = [&](const std::string& name, Budget& budget) {
    visit(name + ".halvings", budget.halvings);
    visit(name + ".clean", budget.clean);
    visit(name + ".recompute_from", budget.recompute_from);
    visit(name + ".recompute_clean", budget.recompute_clean);
  };
  numbers_of("training", budgets.training);
  numbers_of("evaluation", budgets.evaluation);
  if (generation != nullptr) numbers_of("generation", *generation);
}

}  // namespace

Numbers budgets_to_keep(const Config& config, c10::Device device, const BatchBudgets& budgets,
                        const BatchBudget* generation) {
  Numbers kept = circumstances(config, device);
  for_each_number(budgets, generation, [&](const std::string& name, int64_t number) { kept[name] = number; });
  return kept;
}

bool put_back_budgets(const Numbers& kept, const Config& config, c10::Device device, BatchBudgets& budgets,
                      BatchBudget* generation) {
  const auto is_kept = [&](const auto& number) {
    const auto found = kept.find(number.first);
    return found != kept.end() && found->second == number.second;
  };
  if (!std::ranges::all_of(circumstances(config, device), is_kept)) return false;
  for_each_number(budgets, generation, [&](const std::string& name, int64_t& number) {
    const auto found = kept.find(name);
    if (found != kept.end()) number = found->second;
  });
  return true;
}

namespace {

// Runs of older versions call these numbers by other names.
const nlohmann::json& of_either(const nlohmann::json& row, const char* name, const char* old_name) {
  return row.contains(old_name) ? row.at(old_name) : row.at(name);
}

int64_t number_of_either(const nlohmann::json& row, const char* name, const char* old_name) {
  return row.value(name, row.value(old_name, int64_t{0}));
}

}  // namespace

std::map<int64_t, StepCuts> read_step_cuts(const std::filesystem::path& metrics) {
  std::error_code ignored;
  std::ifstream in;
  if (std::filesystem::is_regular_file(metrics, ignored)) in.open(metrics);
  if (!in.is_open())
    throw DataError(concat("training.replay_cuts: ", metrics.string(), " cannot be read as a file"));
  std::map<int64_t, StepCuts> steps;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    number++;
    const std::string where = concat("training.replay_cuts: ", metrics.string(), ":", number);
    in_our_words<DataError>(
        where, "give the metrics.jsonl of a run, with the micro_batch_sizes of each step", [&] {
          const nlohmann::json row = nlohmann::json::parse(line);
          if (row.at("kind") != "train") return;
          steps[row.at("step").get<int64_t>()] = {
              of_either(row, "micro_batch_sizes", "cuts").get<std::vector<int64_t>>(),
              row.at("recomputed_blocks").get<int64_t>(),
              {number_of_either(row, "micro_batch_tokens", "packed_budget"),
               number_of_either(row, "micro_batch_target_tokens", "packed_target_budget")}};
        });
  }
  if (steps.empty())
    throw DataError(concat("training.replay_cuts: ", metrics.string(), " holds no step of training"));
  return steps;
}

}  // namespace trainer
